"""A pack read by the library of its format, which knows nothing of packer: a second opinion on its structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from packer._formats import Reader
from packer._formats.lmdb import sample_key
from packer._packs.damage import Damage
from packer.errors import MissingDependencyError, OptionError, PackError, printable

__all__ = ["LIBRARIES", "disagreements"]

LIBRARIES = {"liblmdb": "lmdb"}
"""The libraries that can be asked, and the format that each one reads."""

_OWN = b"packer/"

ProgressCallback = Callable[[int, int], None]


def disagreements(reader: Reader, library: str, progress: ProgressCallback | None = None) -> Iterator[Damage]:
    """Yield in what a library finds something else in a pack than packer, which found no damage.

    Parameters
    ----------
    reader : Reader
    library : str
        One of `LIBRARIES`.
    progress : callable, optional
        Called with the number of samples that were compared, and their total.

    Raises
    ------
    OptionError
        If the library does not read packs of this format.
    MissingDependencyError
        If it is not installed.
    PackError
        If it cannot read the pack here, whatever the pack is.
    """
    if reader.manifest.format != LIBRARIES[library] or reader.manifest.parts:
        raise OptionError(f"--with {library} is for one file of the format {LIBRARIES[library]}")
    if reader.place.remote:
        raise OptionError(f"--with {library} is for a pack on a disk: stage it first (`packer stage`)")
    try:
        import lmdb
    except ImportError as error:
        raise MissingDependencyError("liblmdb needs lmdb (pip install 'packer-images[lmdb]')") from error
    try:
        with (
            lmdb.open(reader.path, subdir=False, lock=False, readonly=True) as environment,
            environment.begin(buffers=True) as transaction,
        ):
            yield from _compared(reader, iter(transaction.cursor()), progress)
    except lmdb.CorruptedError as error:
        yield Damage(f"liblmdb cannot read it: {error}")
    except lmdb.Error as error:
        raise PackError(f"{printable(reader.path)}: liblmdb cannot read it here: {error}") from error


def _compared(
    reader: Reader, entries: Iterator[tuple[memoryview, memoryview]], progress: ProgressCallback | None
) -> Iterator[Damage]:
    extent, index = reader.table.extent(), 0
    for key, value in entries:
        if bytes(key[: len(_OWN)]) == _OWN:
            continue
        if index == len(reader) or bytes(key) != sample_key(index):
            yield Damage(f"liblmdb finds the key {bytes(key).hex()}, where sample {index} is expected")
            return
        row = reader.table.row(index)
        if len(value) != extent[index] or not row.matches(value[: row.size]):
            yield Damage("liblmdb finds other bytes", index, reader._name_in_error(index))
        index += 1
        if progress is not None and (index % 1000 == 0 or index == len(reader)):
            progress(index, len(reader))
    if index < len(reader):
        yield Damage(f"liblmdb finds {index} samples, and the table has {len(reader)}")
