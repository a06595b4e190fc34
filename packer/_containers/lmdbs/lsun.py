"""LSUN (https://github.com/fyu/lsun): a directory ``CLASS_SPLIT_lmdb`` with ``data.mdb`` for each class.

The values are images, WebP in the files that are given away, and keys are hashes of them. As torchvision has it, the
classes are sorted by their names; ``test_lmdb`` has no class.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from packer._containers.contract import Entry, head_of, natural, no_keys
from packer._containers.lmdbs.imagelmdb import ImageLMDB
from packer._containers.lmdbs.lmdbfiles import DATA, Value
from packer.errors import SourceError, printable

__all__ = ["LSUN"]

_DIRECTORY = re.compile(r"(?:(?P<name>.+?)_)??(?:(?P<split>train|val|test)_)?lmdb")


class LSUN(ImageLMDB):
    """Directories of classes: several of one split, or the directory that they lie in, or one alone."""

    kind = "lsun"

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return path.name == DATA and bool(_DIRECTORY.fullmatch(path.parent.name)) and super().recognise_file(path, head)

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        if DATA in names:
            return super().recognise_directory(path, names)
        inner = [path / name / DATA for name in names if _DIRECTORY.fullmatch(name)]
        inner = sorted(filter(os.path.isfile, inner), key=natural)
        return inner if inner and cls.recognise_file(inner[0], head_of(inner[0])) else None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> LSUN:
        no_keys(cls.kind, keys)
        found = [(_DIRECTORY.fullmatch(path.parent.name), path) for path in paths]
        splits = {match["split"] or "" for match, _ in found if match}
        if len(splits) > 1 or not all(match for match, _ in found):
            raise SourceError(
                f"{printable(paths[0].parent.parent)}: has the splits {', '.join(sorted(splits))}. Say which: "
                f"{printable(paths[0].parent.parent / '*_train_lmdb')}"
            )
        for path in paths:
            if not cls.recognise_file(path, head_of(path)):
                raise SourceError(f"{printable(path)}: is no LMDB file of images, as {printable(paths[0])} is")
        classes = sorted({match["name"] for match, _ in found if match and match["name"]})
        if len(paths) == 1 and not splits - {""}:
            classes = []  # one directory of images, which need not be a class
        if classes and len(classes) != len(paths):
            raise SourceError(f"{printable(paths[0].parent.parent)}: a class has several directories, or one has none")
        return cls.of_files(paths, classes=classes or None)

    def entry(self, value: Value) -> Entry | None:
        entry = super().entry(value)
        match = _DIRECTORY.fullmatch(Path(value.file.path).parent.name)
        if entry is None or self.classes is None or match is None:
            return entry
        return entry._replace(name=f"{match['name']}/{entry.name}", label=match["name"])
