"""What a store of objects holds of a conversion in parts, which tasks without a common disk make together.

Until the pack ``s3://bucket/train.lmdb`` is complete, there are

``train.lmdb/part-00000.lmdb``, …    the parts that are complete
``train.lmdb.partial/parts.json``    what is converted, how, and into how many parts
``train.lmdb.partial/HASH.list``     the source as it was when the job began; its name says which bytes the list has
``train.lmdb.partial/mend-7``        image 7 has stopped a part, and may be another one by now

Each object is written once, by who comes first; whoever comes later finds it, or makes the same bytes. So nobody locks
anything. When all parts are there, anybody makes one pack of them: that takes the parts' tables alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from packer._conversion.jobfile import parse_job, part_name
from packer._formats import open_pack
from packer._formats.joined import TABLE_FILE, join_parts
from packer._formats.manifestfile import MANIFEST_FILE
from packer._manifest import Manifest
from packer._sources import Source, write_listing
from packer._storage.files import remove, writing_to
from packer._storage.locks import held
from packer._storage.outputs import write_output
from packer._storage.place import place_of
from packer._storage.remote.sharing import SharedPrefix
from packer._storage.remote.uploading import require_writable
from packer._storage.remote.uploadlog import UploadLog
from packer._storage.remote.urls import identity
from packer._storage.urlpath import UrlPath
from packer._table import Ints
from packer.errors import DestinationError, SourceError, printable

__all__ = ["JobStore"]

_JOB = "parts.json"
_MEND = "mend-"
_OF_PARTS = re.compile(rf"part-[0-9]{{5,}}\.[a-z0-9]+(/.*)?|{re.escape(TABLE_FILE)}")


class JobStore:
    """A conversion in parts on a store.

    Parameters
    ----------
    destination : Path
        The URL of the pack.
    scratch : Path
        A directory for files that are written before they are uploaded.

    Attributes
    ----------
    destination, directory : UrlPath
        The pack, and what lies beside it until it is complete.
    parts : SharedPrefix
        The objects of the pack.

    Raises
    ------
    DestinationError
        If no pack can be written to that URL.
    RemoteError
        If the store cannot be reached or refuses; so all methods raise it.
    """

    def __init__(self, destination: Path, scratch: Path) -> None:
        require_writable(destination)
        self.destination = destination
        self.directory: Path = UrlPath(f"{destination.__fspath__().rstrip('/')}.partial")  # type: ignore[assignment]
        self.parts = SharedPrefix(destination.__fspath__())
        self._beside = SharedPrefix(self.directory.__fspath__())
        self._scratch = scratch

    def is_complete(self) -> bool:
        """Tell whether there is a pack under the name, or anything else."""
        return MANIFEST_FILE in self.parts.names() or self.parts.is_object()

    def begun(self) -> dict[str, Any] | None:
        """Return what was written down when the job began; None where none is under way."""
        text = self._beside.read(_JOB)
        return None if text is None else parse_job(text, self.directory / _JOB, self.directory)

    def listing(self, begun: dict[str, Any]) -> Path:
        """Return where the list of the source lies, if there is one."""
        return self.directory / str(begun.get("list", "none.list"))

    def begin(self, job: dict[str, Any], source: Source) -> None:
        """Write down what the job is, unless another task was first.

        Raises
        ------
        DestinationError
            If something is there already.
        """
        if self.is_complete():
            raise self._exists_already()
        if self.parts.names():
            if self.begun() is not None:
                return
            raise DestinationError(
                f"{printable(self.destination)}/: holds objects, and neither a pack nor a conversion in parts. Look at "
                "them and delete them, or choose another name."
            )
        with self._desk() as (desk, log):
            if source.origin is None:
                write_listing(source, desk / "source.list")
                job["list"] = f"{_digest(desk / 'source.list')}.list"
                self._beside.send(desk / "source.list", job["list"], log)
            write_output(desk / _JOB, json.dumps(job).encode("ascii"))
            try:
                self._beside.send(desk / _JOB, _JOB, log)
            except DestinationError:
                if self.begun() is None:  # else another task was first
                    raise

    def missing(self, parts: int, format: str) -> list[int]:
        """Return which parts are not complete. The manifest is the last file of a part that is several."""
        there = {name.removesuffix(f"/{MANIFEST_FILE}") for name in self.parts.names()}
        return [number for number in range(parts) if part_name(number, format) not in there]

    def mended(self) -> Ints:
        """Return the images that have stopped a part, and may be others now."""
        names = [name.removeprefix(_MEND) for name in self._beside.names() if name.startswith(_MEND)]
        return np.array(sorted(int(name) for name in names if name.isdecimal()), np.int64)

    def let_mend(self, index: int) -> None:
        """Write down that an image may become another."""
        with self._desk() as (desk, log):
            write_output(desk / "mend", b"")
            self._beside.send(desk / "mend", f"{_MEND}{index}", log)

    def drop(self) -> None:
        """Delete what an unfinished job left: its parts, and what lies beside them; DestinationError of a pack."""
        names = self.parts.names()
        if MANIFEST_FILE in names:
            raise self._exists_already()
        self._beside.delete([_JOB])  # first: from now on nobody joins it
        self._abort_unfinished()
        self.parts.delete(name for name in names if _OF_PARTS.fullmatch(name))
        self._beside.delete(self._beside.names())

    def finish(self) -> Manifest:
        """Make one pack of the parts; return its manifest, also where another process made it.

        Raises
        ------
        DestinationError
            If there is no such job, or parts are missing.
        SourceError
            If no image could be read.
        PackError
            If a part cannot be read.
        """
        job = self.begun()
        if job is None:
            return self._finished()
        format, count = job["settings"]["format"], job["settings"]["parts"]
        if missing := self.missing(count, format):
            shown = ", ".join(map(str, missing[:20])) + (", …" if len(missing) > 20 else "")
            raise DestinationError(
                f"{printable(self.destination)}: {len(missing)} of {count} parts are missing: {shown}"
            )
        names = [part_name(number, format) for number in range(count)]
        with self._desk() as (desk, log):
            manifest = join_parts(desk, names, job["made_of"], place_of(self.destination))
            if not manifest.count:
                raise SourceError(f"{printable(self.destination)}: not one of {job['images']} images can be read")
            for name in (TABLE_FILE, MANIFEST_FILE):
                self.parts.send(desk / name, name, log)
        self._abort_unfinished()
        names = self._beside.names()
        self._beside.delete(sorted(names, key=lambda name: name == _JOB))  # last: a killed finish is done again
        return manifest

    def _finished(self) -> Manifest:
        if not self.is_complete():
            raise DestinationError(
                f"{printable(self.destination)}: no conversion in parts was begun. Begin one with "
                "`packer convert --parts N --part K`, or with --cluster."
            )
        with open_pack(self.destination) as reader:
            if not reader.manifest.parts:
                raise DestinationError(f"{printable(self.destination)}: a pack without parts, which is finished")
            return reader.manifest

    def _exists_already(self) -> DestinationError:
        return DestinationError(
            f"{printable(self.destination)}: exists already. Choose another name, or delete it first: parts of a new "
            "pack would replace those of the old one under its readers."
        )

    def _abort_unfinished(self) -> None:
        """Abort uploads of processes that were killed; who is alive finds the object that is there."""
        with self._desk() as (_, log):  # a new log knows of no upload: all are others'
            self.parts.abort_unfinished(log)
            self._beside.abort_unfinished(log)

    @contextlib.contextmanager
    def _desk(self) -> Iterator[tuple[Path, UploadLog]]:
        """Have a directory for files that are written and uploaded at once; what a killed process left there goes."""
        desk = self._scratch / f"{self.destination.stem}-{identity(self.destination)[:16]}-job"
        with held(desk.with_name(f"{desk.name}.lock"), lambda: None):
            remove(desk)
            with writing_to(desk):
                desk.mkdir(mode=0o700)
            try:
                with contextlib.closing(UploadLog(desk / "upload.jsonl")) as log:
                    yield desk, log
            finally:
                remove(desk)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()[:32]
