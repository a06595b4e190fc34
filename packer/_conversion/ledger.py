"""The account of a conversion: what became of the images, as far as the pack, the report and the summary tell of it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packer._conversion.journal import Entry
from packer._manifest import TILED
from packer._storage.files import writing_to
from packer._storage.outputs import require_output
from packer._storage.spool import Spool, TableBuilder
from packer._table import COLUMNS
from packer.errors import DestinationError, printable

__all__ = ["Ledger", "check_report"]


def check_report(report: str | os.PathLike[str], keep: Iterable[Path] = ()) -> None:
    """Raise DestinationError where a report cannot be written, or would replace what to `keep` or no report."""
    require_output(report, "report", (b"{",))
    path, shown = Path(os.path.abspath(report)), printable(os.fspath(report))
    for other in keep:
        same = path == Path(os.path.abspath(other))
        if same or (os.path.exists(path) and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(other))):
            what = printable(other) if same else f"a file of {printable(other)}"
            raise DestinationError(f"{shown}: the report would replace {what}. Choose another name.")


class Ledger:
    """Keeps account of what became of the images; what grows with their number lies in files.

    Parameters
    ----------
    directory : Path
        Where the files lie; they have no names.
    reporting : bool
        Whether a report will be written.
    types : mapping, optional
        The columns of the table and their dtypes.

    Attributes
    ----------
    rows : TableBuilder
        The rows of the images that became samples.
    count : int
        How many images are accounted for.
    bytes_in : int
        Size in bytes of the files that became samples.
    kept : int
        How many samples are the very bytes of their files.
    skipped : list of dict
        ``{"name", "reason"}`` of every image that was left out.
    findings : Counter
        How often the audit found what.
    """

    def __init__(self, directory: Path, *, reporting: bool, types: Mapping[str, str] = COLUMNS) -> None:
        self.rows = TableBuilder(directory, types)
        self.count = 0
        self.bytes_in = 0
        self.kept = 0
        self.skipped: list[dict[str, str]] = []
        self.findings: Counter[str] = Counter()
        self._report = Spool(directory) if reporting else None

    def add(self, entry: Entry) -> None:
        """Account for the next image of the source."""
        self.count += 1
        if entry.reason:
            self.skipped.append({"name": entry.name, "reason": entry.reason})
            self._note({"name": entry.name, "skipped": entry.reason})
            return
        entry.add_to(self.rows)
        self.bytes_in += entry.stamp[0]
        self.kept += entry.kept
        if entry.findings:
            self.findings.update(entry.findings)
            noted = [finding for finding in entry.findings if finding != TILED]
            if noted:
                self._note({"name": entry.name, "findings": noted})

    def write_report(self, path: Path, more: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write a JSON line for every image with a finding and every one that was left out, and then `more` lines."""
        assert self._report is not None
        for line in more:
            self._note(line)
        with writing_to(path), open(path, "wb") as file:
            file.write(self._report.array("u1").data)

    def close(self) -> None:
        """Close the files."""
        self.rows.close()
        if self._report is not None:
            self._report.close()

    def _note(self, line: Mapping[str, Any]) -> None:
        if self._report is not None:
            self._report.append(json.dumps(line).encode("ascii") + b"\n")
