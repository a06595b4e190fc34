"""A conversion to object storage: the pack is made on this machine, in its own directory, and then uploaded.

The directory for ``s3://bucket/train.lmdb``, called the room of the upload, lies in the scratch directory, and no other
user can write into it. It holds

``train.lmdb``      the pack when it is complete; until then ``train.lmdb.partial``
``request.json``    the source and the settings of the pack; a conversion that continues must have the same
``upload.jsonl``    the log of the upload; see `packer._storage.remote.s3`

The room is removed after the objects have been compared with the pack. After an interruption, the same call continues.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from packer._conversion.convert import Summary, conversion_settings, summary_of_made
from packer._conversion.destination import default_scratch, make_own_directory, make_scratch
from packer._conversion.request import ConversionRequest
from packer._conversion.resume import setting_differences, started_differently
from packer._conversion.workspace import check_inputs, require_pack
from packer._formats import open_pack
from packer._formats.files import PackFiles
from packer._storage.files import held, remove, write_output, writing_to
from packer._storage.place import place_of
from packer._storage.remote.client import look
from packer._storage.remote.s3 import UploadLog
from packer._storage.remote.upload import MANIFESTS, Upload, require_writable
from packer._storage.remote.urls import identity, parse
from packer.errors import DestinationError, PackLockedError, option, printable


class UploadedConversion:
    """A conversion to a URL, as a context manager: inside the block, only this process uses the room.

    Parameters
    ----------
    request : ConversionRequest
        Its `dst` is the URL.
    scratch : Path, optional
        The directory that contains the room; by default `default_scratch`.

    Attributes
    ----------
    request : ConversionRequest
        The conversion on this machine, which writes the pack into the room.
    room : Path
    notes : list of str
        Remarks about the leftovers of earlier runs.
    made : Summary or None
        The summary of the pack in the room, if an earlier run completed it; otherwise None.

    Raises
    ------
    DestinationError
        If no pack can be written to that URL, or to `scratch`.
    RemoteError
        If the store cannot be reached or refuses a request.
    PackLockedError
        If another process makes or uploads the same pack, here or on another machine.
    ResumeError
        If the room contains an unfinished conversion to the same URL with other settings or another source.
    """

    def __init__(self, request: ConversionRequest, scratch: Path | None = None) -> None:
        require_writable(request.dst)
        check_inputs(request.dst, request.inputs())
        url = parse(request.dst)
        self._url, self._overwrite, self._fresh = str(url), request.overwrite, request.fresh
        self._scratch = default_scratch() if scratch is None else Path(os.path.abspath(scratch))
        # The name alone is not unique: several buckets may have a pack of this name.
        self.room = self._scratch / f"{request.dst.stem}-{identity(self._url)[:16]}"
        self._done = self.room.with_name(f"{self.room.name}.done")
        self.request = replace(request, dst=self.room / request.dst.name, overwrite=False)
        self.notes: list[str] = []
        self.made: Summary | None = None
        self._held = contextlib.ExitStack()

    def __enter__(self) -> UploadedConversion:
        with contextlib.ExitStack() as held_by_now:
            make_scratch(self._scratch)
            held_by_now.enter_context(held(self.room.with_name(f"{self.room.name}.lock"), self._refuse_to_wait))
            remove(self._done)
            if self._fresh:
                self._start_over()
            make_own_directory(self.room)
            held_by_now.callback(self._tidy)
            self._require_same()
            self._log = UploadLog(self.room / "upload.jsonl")
            held_by_now.callback(self._log.close)
            self._upload = Upload(self._url, self._log, overwrite=self._overwrite)
            self._require_pack_or_nothing()
            self.notes += self._upload.require_free(fresh=self._fresh)
            self.made = self._made_before()
            if self.made is None:
                self.request.require_destination()
            self._held = held_by_now.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._held.close()

    def upload(self, summary: Summary, progress: Callable[[int, int], None] | None = None) -> Summary:
        """Upload the pack, and remove the room; return a summary of the conversion and the upload.

        Parameters
        ----------
        summary : Summary
            Either `made`, or the summary that converting `request` returned.
        progress : callable, optional
            Called, on any thread, with the number of bytes uploaded so far, and the number of all bytes.

        Raises
        ------
        DestinationError, RemoteError
            If the pack cannot be uploaded. Calling `upload` again continues the upload.
        """
        started = time.monotonic()
        files = PackFiles.of(self.request.dst)
        self._require_pack_or_nothing()  # again: others may have written there during the conversion
        uploads = [(name, self.request.dst / name if name else self.request.dst) for name in files.sizes]
        self.notes += self._upload.run(uploads, progress)
        self._log.close()
        with writing_to(self.room):
            os.rename(self.room, self._done)  # in one step: a partly removed room could not be continued
        shutil.rmtree(self._done, ignore_errors=True)
        seconds = summary.seconds + time.monotonic() - started
        return replace(summary, destination=self._url, seconds=seconds)

    def _require_pack_or_nothing(self) -> None:
        """Raise DestinationError if the upload would replace or delete anything that does not belong to a pack.

        This is checked only with `overwrite`, and only before the upload has begun. Objects below the URL that have no
        manifest are not checked here, because `Upload` refuses them and says what to do.

        Raises
        ------
        RemoteError
            If the objects at the URL cannot be read.
        """
        if not self._overwrite or not self._log.empty:
            return
        found = look(self._url, 1)
        names = self._upload.list_replaced()
        if (found is not None and found[1]) or place_of(self._url).holding(MANIFESTS):
            require_pack(self._url, names)

    def _refuse_to_wait(self) -> None:
        raise PackLockedError(
            f"{parse(self._url).redacted()}: another process is making this pack in {printable(self.room)}"
        )

    def _start_over(self) -> None:
        """Drop the work of an earlier run."""
        if os.path.exists(self.room / "upload.jsonl"):
            with contextlib.closing(UploadLog(self.room / "upload.jsonl")) as log:
                Upload(self._url, log, overwrite=self._overwrite).give_up()
        remove(self.room)

    def _tidy(self) -> None:
        """Remove the room unless it has a pack, complete or unfinished."""
        if not self._holds_work:
            shutil.rmtree(self.room, ignore_errors=True)

    @property
    def _holds_work(self) -> bool:
        """Whether the room has a pack, complete or unfinished."""
        return os.path.exists(self.request.dst) or os.path.exists(f"{self.request.dst}.partial")

    def _require_same(self) -> None:
        """Raise ResumeError if the room belongs to another conversion; in a new room, record this conversion."""
        path, format = self.room / "request.json", self.request.format_row.name
        described = {
            **conversion_settings(format, self.request.format_options, self.request.recipe),
            **self.request.described(),
            "parts": self.request.parts,
        }
        del described["versions"]  # an unfinished conversion compares versions; for a complete pack they do not matter
        if not self._holds_work:
            write_output(path, json.dumps(described).encode("ascii"))
            return
        try:
            before = json.loads(path.read_text("ascii"))
        except (OSError, ValueError) as error:
            raise DestinationError(
                f"{printable(path)}: cannot be read. Start over with {option('fresh', True)}."
            ) from error
        if differences := setting_differences(before, described):
            raise started_differently(self.room, differences)

    def _made_before(self) -> Summary | None:
        """Return the summary of the pack in the room if it is complete, otherwise None."""
        if not os.path.exists(self.request.dst):
            return None
        files = PackFiles.of(self.request.dst)
        with open_pack(self.request.dst) as reader:
            manifest = reader.manifest
        when = datetime.fromtimestamp(max(files.modified.values()) / 1e9, timezone.utc)
        self.notes.append(
            f"the pack is complete since {when:%Y-%m-%d %H:%M:%S} UTC, and the upload continues; --fresh converts again"
        )
        return summary_of_made(self.request.dst, manifest, files.size)
