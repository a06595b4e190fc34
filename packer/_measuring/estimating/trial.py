"""A trial: some images of a source, converted as all of them would be, and what became of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer._conversion.convert import ConversionProgress
from packer._conversion.request import ConversionRequest
from packer._formats import open_pack
from packer._sources import Source
from packer._sources.others import OtherFiles
from packer._storage.files import remove
from packer._table import Ints

__all__ = ["Trial", "convert_some"]

_MOST_AROUND = 1 << 16  # bytes; beyond, something else lies there


@dataclass(frozen=True, eq=False)
class Trial:
    """What a conversion of some images did.

    Attributes
    ----------
    places : (n,) int64 array
        Which images, as places in the order of a `Population`.
    stored : (n,) float64 array
        Bytes of each in the pack, with the blobs of its fields and what is around them; 0 of one that was left out.
    data : int
        Bytes of all, without what is around them.
    beside : int
        Other bytes of the pack: its structure, table and manifest.
    seconds : float
        Duration of the conversion.
    around : float
        How much of that was before the first batch was written, and after the last one.
    findings : list of tuple of str
        What was found of each image.
    is_left_out : (n,) bool array
        Which images cannot be converted.
    left_out : list of dict
        Name and reason of each image that was left out.
    """

    places: Ints
    stored: npt.NDArray[np.float64]
    data: int
    beside: int
    seconds: float
    around: float
    findings: list[tuple[str, ...]]
    is_left_out: npt.NDArray[np.bool_]
    left_out: list[dict[str, str]]

    def __len__(self) -> int:
        return len(self.places)


def convert_some(
    request: ConversionRequest,
    source: Source,
    places: Ints,
    indices: Ints,
    *,
    directory: Path,
    progress: Callable[[ConversionProgress], None] | None = None,
) -> Trial:
    """Convert some images of a source as a request asks for all of them, into a directory; nothing of it stays.

    Parameters
    ----------
    request : ConversionRequest
    source : Source
        All images.
    places, indices : (n,) int64 arrays
        Which images, as places in the order of a `Population`, and as indices of `source`.
    directory : Path
        Where the pack will be for a moment.
    progress : callable, optional
        As for `packer.convert`.

    Raises
    ------
    PackerError
        As `packer.convert` raises it, but not for images that cannot be read: these are left out.
    """
    in_order = np.argsort(indices)
    account = source.complete_account()
    some = replace(source.taken(indices[in_order]), others=OtherFiles(), notes=[], doubts=(), account=account)
    pack, report = directory / f"trial{request.format_row.suffixes[0]}", directory / "findings.jsonl"
    asked = replace(
        request,
        dst=pack,
        format=request.format_row.name,
        on_error="skip",
        report=report,
        parts=None,
        overwrite=False,
        fresh=True,
        ignore_free_space=True,
    )
    written = list[float]()

    def note(done: ConversionProgress) -> None:
        written.append(time.perf_counter())
        if progress is not None:
            progress(done)

    try:
        began = time.perf_counter()
        summary = asked.convert(some, note, allow_empty=True)
        seconds = time.perf_counter() - began
        noted = map(json.loads, report.read_text("utf-8").splitlines())
        findings = {line["name"]: tuple(line["findings"]) for line in noted if "findings" in line}
        skipped = {entry["name"] for entry in summary.manifest.skipped}
        names = [some.names.get(index) for index in range(len(some))]
        is_left_out = np.array([name in skipped for name in names], bool)
        stored = np.zeros(len(some))
        stored[~is_left_out], data = _stored(pack)
        return Trial(
            places[in_order],
            stored,
            data,
            summary.bytes_out - int(stored.sum()),
            seconds,
            max(0.0, seconds - (written[-1] - written[0])) if written else seconds,
            [findings.get(name, ()) for name in names],
            is_left_out,
            summary.manifest.skipped,
        )
    finally:
        for path in (pack, report):
            remove(path)


def _stored(pack: Path) -> tuple[npt.NDArray[np.float64], int]:
    """Return how many bytes each sample takes in a pack: its data, its fields' blobs, and all up to the next sample.

    The last is what a format puts around a sample: the rest of a page, a record's header. The second thing returned are
    the bytes of all samples without it.
    """
    with open_pack(pack) as reader:
        sizes = reader.table.size.astype(np.float64)
        for field in reader.fields.values():
            if field.is_blob:
                sizes += reader.table.more[f"field.{field.name}.size"].clip(0)
        data = int(sizes.sum())
        places, held = reader.locate(np.arange(len(reader)))
        order = np.lexsort((places["position"], places["file"]))
        around = np.diff(places["position"][order]) - sizes[order[:-1]]
        del held
    here = np.diff(places["file"][order]) == 0
    sizes[order[:-1]] += np.where(here & (around >= 0) & (around < _MOST_AROUND), around, 0)
    return sizes, data
