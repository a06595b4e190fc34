"""The registry of containers: finds the container of a file or a directory.

Containers are tried in the order of their registry. Containers of other packages come after packer's own, or before
them for a name that only they claim.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeVar

from packer._containers.contract import Container, head_of
from packer.errors import MissingDependencyError, PackerError, SourceError, warn
from packer.plugins import ContainerDescriptor
from packer.plugins._registries import CONTAINERS

_T = TypeVar("_T")


def container_of_file(path: Path) -> type[Container] | None:
    """Return the container of a file; None if no container recognises it.

    Raises the same errors as `ContainerDescriptor.container` and `Container.recognise_file`.
    """
    head = head_of(path)
    for row in _fitting(path.name, lambda row: row.fits_file(path, head)):
        if _answer(row, lambda kind: kind.recognise_file(path, head)):
            return row.container()
    return None


def containers_of_directory(
    path: Path, names: Collection[str], *, strict: bool = True
) -> Iterator[tuple[type[Container], list[Path]]]:
    """Yield the containers that recognise a directory with entries of these names, and the files that each would open.

    Raises the same errors as `ContainerDescriptor.container` and `Container.recognise_directory`. Unless `strict`,
    containers that refuse the directory are left out.
    """
    lines = "\n".join(names)
    for row in _fitting(lines, lambda row: row.fits_name(lines) or row.fits_below(path, names)):
        try:
            files = _answer(row, lambda kind: kind.recognise_directory(path, names))
        except (SourceError, MissingDependencyError):
            if strict:
                raise
            continue
        if files:
            yield row.container(), files


def _fitting(names: str, fits: Callable[[ContainerDescriptor], bool]) -> Iterator[ContainerDescriptor]:
    """Yield the matching containers, in the order of the table; `names` has one name in each line."""
    own = list(filter(fits, CONTAINERS.own.values()))
    first = []
    if not any(row.fits_name(names) for row in own):
        first = [row for row in CONTAINERS.plugins.values() if row.fits_name(names) and not row.last]
    yield from first
    yield from (row for row in own if not row.last)
    later = [row for row in CONTAINERS.plugins.values() if row not in first and fits(row)]
    yield from (row for row in later if not row.last)
    yield from (row for row in (*own, *later) if row.last)


def _answer(row: ContainerDescriptor, ask: Callable[[type[Container]], _T]) -> _T | None:
    """Return a container's answer; None, with a warning, if the code of another package fails."""
    kind = row.container()
    if not row.plugin:
        return ask(kind)
    try:
        return ask(kind)
    except PackerError:
        raise
    except Exception as error:
        warn(f"the plug-in {row.name} ({row.plugin}) fails at recognising files: {type(error).__name__}: {error}")
        return None
