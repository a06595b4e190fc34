"""Syntax trees of packer's sources."""

from __future__ import annotations

import ast
import gc
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """Parse a file without garbage collections: they would take four times as long, and a tree has no garbage."""
    collected = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text("utf-8"))
    finally:
        if collected:
            gc.enable()


def dotted(node: ast.expr) -> str:
    """Return the text of a name with its attributes, such as ``os.path.join``, sooner than `ast.unparse`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
