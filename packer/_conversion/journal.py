"""The journal of a conversion: what became of the images so far, in the order of the source.

A line holds the CRC-32C of what follows, and then JSON: the first line says what is being converted and how, each other
one is a checkpoint. A line is written when the bytes of its samples are on the disk. A last line that was not written
whole is passed over.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import google_crc32c

from packer._storage.files import writing_to
from packer._storage.spool import TableBuilder
from packer._storage.stamps import Stamp
from packer._table import encode_name
from packer.errors import DestinationError, printable

__all__ = ["Entry", "Journal"]


@dataclass(slots=True)
class Entry:
    """What became of one image of the source: a row of the table, or, with a `reason`, nothing.

    Attributes
    ----------
    name, label, height, width, offset, size, crc32c
        The row; see `packer._table.Table`.
    stamp : Stamp
        Size and time of the file when it was read, or left out.
    findings : tuple of str
        What the audit found.
    kept : bool
        Whether the sample is the very bytes of the file.
    more : tuple of int and float
        The columns of the fields.
    reason : str
        Why the image was left out; empty where it was not.
    """

    name: str
    label: int | float = 0
    height: int = 0
    width: int = 0
    offset: int = 0
    size: int = 0
    crc32c: int = 0
    stamp: Stamp = (0, 0)
    findings: tuple[str, ...] = ()
    kept: bool = False
    reason: str = ""
    more: tuple[int | float, ...] = ()

    def to_json(self) -> list[Any]:
        """Return the entry as a line of the journal holds it."""
        if self.reason:
            return [self.name, self.reason, list(self.stamp)]
        numbers = [self.label, self.height, self.width, self.offset, self.size, self.crc32c]
        return [self.name, *numbers, list(self.stamp), list(self.findings), self.kept, *self.more]

    @classmethod
    def from_json(cls, values: list[Any]) -> Entry:
        """Return the entry that `to_json` made `values` of."""
        if len(values) == 3:
            return cls(values[0], reason=values[1], stamp=(values[2][0], values[2][1]))
        name, label, height, width, offset, size, crc32c, stamp, findings, kept, *more = values
        row = cls(name, label, height, width, offset, size, crc32c, (stamp[0], stamp[1]), tuple(findings), kept)
        row.more = tuple(more)
        return row

    def add_to(self, rows: TableBuilder) -> None:
        """Add the row to a table."""
        rows.append(
            label=self.label,
            height=self.height,
            width=self.width,
            offset=self.offset,
            size=self.size,
            crc32c=self.crc32c,
            name=encode_name(self.name),
            more=self.more,
        )


class Journal:
    """The journal at `path`; `resume` or `begin` before recording.

    Attributes
    ----------
    header : dict
        The first line of an earlier run; empty where there was no such run.
    checkpoints : int
        How many checkpoints that run recorded.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.header: dict[str, Any] = {}
        self.checkpoints = 0
        self._valid = 0  # bytes
        for text, end in self._lines():
            if self._valid:
                self.checkpoints += 1
            else:
                self.header = json.loads(text)
            self._valid = end

    def entries(self) -> Iterator[Entry]:
        """Yield what was recorded so far, in the order of the source."""
        for text, _ in itertools.islice(self._lines(), 1, None):
            yield from map(Entry.from_json, json.loads(text)["entries"])

    def begin(self, header: Mapping[str, Any]) -> None:
        """Start over."""
        self._open(0)
        self._write(header)

    def resume(self) -> None:
        """Go on after the last whole line."""
        self._open(self._valid)

    def record(self, entries: Sequence[Entry]) -> None:
        """Write down what became of the next images, and return once that is on the disk."""
        self._write({"entries": [entry.to_json() for entry in entries]})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield the JSON of each whole line, and where in the file the line ends."""
        end = 0
        try:
            with open(self._path, "rb") as file:
                for line in file:
                    text = line[9:-1]
                    if not line.endswith(b"\n") or line[:9] != b"%08x " % google_crc32c.value(text):
                        break
                    end += len(line)
                    yield text, end
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DestinationError(f"{printable(self._path)}: cannot be read: {error.strerror}") from error

    def _open(self, keep: int) -> None:
        with writing_to(self._path):
            self._file = open(self._path, "ab")  # noqa: SIM115 - held until `close`
            self._file.truncate(keep)
            self._file.seek(0, os.SEEK_END)

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._file is not None
        text = json.dumps(value, separators=(",", ":")).encode("ascii")
        with writing_to(self._path):
            self._file.write(b"%08x %s\n" % (google_crc32c.value(text), text))
            self._file.flush()
            os.fsync(self._file.fileno())
