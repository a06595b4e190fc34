"""Random access to the values of fields, which lie in the table or beside the images."""

from __future__ import annotations

import abc
import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._fields import Field, Stored
from packer._formats.contract import PackAccess
from packer._table import NO_VALUE, Buffer, Ints, Names, value_checksum
from packer.errors import CorruptPackError, PackError

__all__ = ["ValueAccess"]

_MOST_TOGETHER = 1 << 26  # bytes: larger blobs are read one by one


class ValueAccess(PackAccess):
    """An open pack whose fields are read."""

    check: str
    _checked_columns: dict[str, npt.NDArray[np.bool_]]
    """Which values there are, of the fields that were compared with their checksums."""

    @property
    @abc.abstractmethod
    def names(self) -> Names:
        """The samples' names, read from the table when they are asked for."""

    @abc.abstractmethod
    def position(self, index: int) -> int:
        """Return an index counted from the beginning; IndexError where there is no such sample."""

    @abc.abstractmethod
    def require_column(self, name: str) -> None:
        """Compare a whole column of the table with its checksum; CorruptPackError where it does not fit."""

    @abc.abstractmethod
    def _damaged(self, index: int, reason: str) -> CorruptPackError: ...

    @functools.cached_property
    def fields(self) -> Mapping[str, Field]:
        """What there is beside image and label, by name, in the order of the pack."""
        return {field.name: field for field in self.manifest.fields}

    def value(self, index: int, name: str) -> Stored:
        """Return what the pack holds of a field of one sample: a number, bytes, or None where there is no value.

        Raises
        ------
        KeyError
            If the pack has no such field.
        IndexError, CorruptPackError, PackError
            As for `read`; the errors name the field.
        """
        position = self.position(index)
        if not self.fields[name].is_blob:
            values, present = self._values_of(np.array([position]), name)
            return values[0].item() if present[0] else None
        return self.blobs(np.array([position]), name)[0]

    def column(self, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all values of a scalar or a class, and which of them are there, both (N,) arrays.

        They are compared with their checksums when they are first asked for. What stands in the place of a value that
        is not there means nothing. A bool is a uint8.

        Raises
        ------
        KeyError
            If the pack has no such field.
        CorruptPackError
            If a column is damaged.
        """
        present = self._present(name)
        return self.table.kept(f"field.{name}"), present

    def _values_of(self, positions: Ints, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return the values of some samples, and which of them are there; the rest as of `column`."""
        present = self._present(name)
        return self.table.more[f"field.{name}"][positions], present[positions]

    def _present(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which values of a scalar or a class are there, (N,)."""
        self.require_table()
        if name not in self._checked_columns:
            for column in self.fields[name].columns():
                self.require_column(column)
            values = self.table.more[f"field.{name}"]
            missing = self.table.more.get(f"field.{name}.null")
            self._checked_columns[name] = values != NO_VALUE if missing is None else missing == 0
        return self._checked_columns[name]

    def blobs(self, positions: Ints, name: str) -> list[Buffer | None]:
        """Return what the pack holds of a field of several samples; None where there is no value.

        Parameters
        ----------
        positions : (N,) int64 array
            As `positions` gives.
        name : str
            The name of a field whose values are bytes.

        Raises
        ------
        CorruptPackError
            If the bytes, or the row that leads to them, are not what was written; the error names index and field.
        """
        (found,) = self.blobs_of(positions, (name,))
        return found

    def blobs_of(self, positions: Ints, names: Sequence[str]) -> list[list[Buffer | None]]:
        """Return what `blobs` returns, of each of several fields; what lies side by side is read at once."""
        located = [rows.T.tolist() for rows in self._locate_all(positions, names)]
        found: list[list[Buffer | None]] = [[None] * len(positions) for _ in names]
        for place in np.argsort(self.table.offset[positions]).tolist():  # reads go through the file in one direction
            blobs = self._blobs_of_one(int(positions[place]), names, *(rows[place] for rows in located))
            for of_field, blob in zip(found, blobs, strict=True):
                of_field[place] = blob
        return found

    def locate_blobs(self, positions: Ints, name: str) -> tuple[Ints, Ints, Ints]:
        """Return where the blobs of a field begin, as a row's `offset` counts; their sizes, and their checksums."""
        offsets, sizes, checksums = self._locate_all(positions, (name,))
        return offsets[0], sizes[0], checksums[0]

    def _locate_all(self, positions: Ints, names: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """Return what `locate_blobs` returns, of F fields: three (F, N) arrays."""
        self.require_table()
        table, begins, left = self.table, {}, set(names)
        at = table.offset[positions] + table.size[positions]
        for field in self.manifest.fields:  # each blob begins where the one before it ends, unless they lie apart
            if left and field.is_blob:
                sizes = table.more[f"field.{field.name}.size"][positions]
                own = table.more.get(f"field.{field.name}.offset")
                begins[field.name] = at if own is None else own[positions], sizes
                at = at + np.maximum(sizes, 0)
                left.discard(field.name)
        if left:
            raise KeyError(min(left))
        found = np.empty((3, len(names), len(positions)), np.int64)
        for number, name in enumerate(names):
            found[:2, number] = begins[name]
            found[2, number] = table.more[f"field.{name}.crc32c"][positions]
        return found[0], found[1], found[2]

    def _blobs_of_one(
        self, position: int, names: Sequence[str], offsets: list[int], sizes: list[int], checksums: list[int]
    ) -> Iterator[Buffer | None]:
        """Yield what the pack holds of several fields of one sample, compared with the checksums."""
        name = None
        begin, together = self._fetch_together(offsets, sizes)
        for field, offset, size, expected in zip(names, offsets, sizes, checksums, strict=True):
            if size == NO_VALUE and expected == 0:
                yield None
                continue
            try:
                if size == 0:  # and it may lie where the data end
                    blob: Buffer = b""
                elif size > 0 and together:
                    blob = together[offset - begin : offset - begin + size]
                else:
                    blob = self._fetch(offset, size)
            except CorruptPackError as error:
                raise self._damaged(position, f"field {field!r}: {error.reason}") from error
            except PackError as error:
                raise PackError(f"{error} (field {field!r} of sample {position})") from error
            if self.check == "always":
                name = self.names.encoded(position) if name is None else name
                if value_checksum(blob, name) != expected:
                    raise self._damaged(position, f"field {field!r}: the checksum does not fit")
            yield blob

    def _fetch_together(self, offsets: Sequence[int], sizes: Sequence[int]) -> tuple[int, Buffer]:
        """Return where the first of several blobs begins, and the bytes from there to the end of the last.

        No bytes where more lie between that are others'; or where a damaged size leads out of the file, so that each
        blob is fetched by itself, and the error names the one that cannot be.
        """
        places = [(offset, size) for offset, size in zip(offsets, sizes, strict=True) if size > 0]
        if len(places) > 1:
            begin, wanted = min(places)[0], sum(size for _, size in places)
            length = max(offset + size for offset, size in places) - begin
            if length <= min(2 * wanted, _MOST_TOGETHER):
                with contextlib.suppress(PackError):
                    return begin, self._fetch(begin, length)
        return 0, b""
