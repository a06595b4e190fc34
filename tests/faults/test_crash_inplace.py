"""A conversion of a container or an index that was killed is continued, and makes the same pack as without a kill."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import packer
from tests.faults.crashes import CrashServer
from tests.samples import content
from tests.sources.test_index import bag


@pytest.mark.parametrize("form", ["index", "index with fields", "container"])
def test_killed_at_ten_moments(form: str, crash_server: CrashServer, tree: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"format": "lmdb"}
    images = sorted(file for file in tree.rglob("*") if file.is_file())
    if form == "container":
        src = bag(tmp_path / "x.bag", [file.read_bytes() for file in images])
    else:
        src, texts = tmp_path / "x.index", tmp_path / "texts"
        for file in images:
            (texts / file.relative_to(tree)).parent.mkdir(parents=True, exist_ok=True)
            (texts / file.relative_to(tree)).with_suffix(".txt").write_text(str(file) * 40)
        template = f"caption:text={os.path.relpath(texts, tree)}/{{dir}}/{{stem}}.txt"
        packer.index(tree, src, on_error="skip", fields=[template] if "fields" in form else [])
    reference, path = tmp_path / "reference.lmdb", tmp_path / "pack.lmdb"
    whole = crash_server.run(src, reference, **settings)
    assert whole is not None
    expected, continued = content(reference), set()
    for at in range(1, whole.changes, max(1, whole.changes // 10)):
        ended = crash_server.run(src, path, at=at, **settings)
        if not path.exists() or os.path.exists(f"{path}.partial"):
            ended = crash_server.run(src, path, overwrite=path.exists(), **settings)
            assert ended is not None
            continued.add(ended.continued)
        assert content(path) == expected, f"killed at change {at}"
        path.unlink()
    assert len(continued) > 1
