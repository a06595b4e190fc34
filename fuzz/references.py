"""Files of other tools whose values refer to one object many times, or to themselves, in a few bytes.

The values are pickles, as opcodes drawn at random; values of ``pyarrow.serialize`` with arbitrary offsets in unions and
lists; columns of Arrow and Parquet; keys of LMDB that refer to one page; and MessagePack with many levels.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from packer._storage.lmdb_tree import F_BIGDATA, NODE_HEADER, P_LEAF, PAGE, PAGE_HEADER

_LONG = (1, 10, 100, 1 << 12, 1 << 17, 1 << 20)
_WIDE = (1, 2, 2, 3, 30, 300, 3000)
_CALLED = (
    *(b"c_codecs\nencode\n", b"cnumpy\ndtype\n", b"cbuiltins\nbytearray\n", b"cbuiltins\nbytes\n"),
    *(b"cnumpy.core.multiarray\nscalar\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"cos\nsystem\n"),
    *(b"cnumpy._core.numeric\n_frombuffer\n", b"cbuiltins\neval\n"),
)
_KEPT = 250  # entries of a memo, whose numbers are single bytes


def forge_references(kind: str, path: Path, image: bytes, chance: Random) -> None:
    """Write a file of a kind of `REFERRING`; all of it depends on the random numbers alone."""
    REFERRING[kind](path, image, chance)


def _pickles(path: Path, image: bytes, chance: Random) -> None:
    ordinary = pickle.dumps((image, 1, ["a", 1], "text", b"bytes", 0.5))
    as_dict = chance.random() < 0.5
    values = [_Program(image, chance).written(as_dict=as_dict) for _ in range(chance.randrange(1, 4))]
    if not as_dict and chance.random() < 0.5:
        values.insert(0, ordinary)
    items = [(b"%d" % number, value) for number, value in enumerate(values)]
    if chance.random() < 0.2:
        items.append((b"__keys__", _Program(b"0", chance).written(alone=True)))
    _lmdb(path, items)
    if chance.random() < 0.2:
        _change(path, chance)


class _Program:
    """A pickle of opcodes drawn at random, most of which refer to what earlier ones made."""

    def __init__(self, image: bytes, chance: Random) -> None:
        self._chance, self._written, self._count = chance, bytearray(b"\x80\x04"), 0
        self._wild = chance.random() < 0.2
        self._lists: list[int] = []
        self._keep(b"B" + struct.pack("<I", len(image)) + image)

    def written(self, *, as_dict: bool = False, alone: bool = False) -> bytes:
        """Return the pickle of a tuple or a dict of the image and random objects; if `alone`, of a list without it."""
        chance = self._chance
        self._keep(b"K\x01")
        self._keep(b"X" + struct.pack("<I", size := chance.choice(_LONG)) + b"x" * size)
        for _ in range(chance.choice([1, 3, 10, 30, 60, 200])):
            self._step()
        made = b"".join(self._any() for _ in range(chance.randrange(1, 4)))
        if alone:
            self._written += b"(" + made + self._any() * chance.choice(_WIDE) + b"l."
        elif not as_dict:
            self._written += b"(h\x00" + (b"h\x01" if chance.random() < 0.9 else self._any()) + made + b"t."
        else:
            named = (b"X" + struct.pack("<I", 2) + b"m%d" % at + self._any() for at in range(chance.randrange(9)))
            self._written += b"(X\3\0\0\0imgh\x00X\5\0\0\0labelh\x01" + b"".join(named) + b"d."
        return bytes(self._written)

    def _step(self) -> None:
        chance, one = self._chance, self._any()
        wide = chance.choice(_WIDE)
        if self._wild and chance.random() < 0.2:
            self._keep(chance.choice([self._called(), self._filled(), one + one + b"\x93", self._any() + one + b"a"]))
        elif chance.random() < 0.2:
            self._lists.append(self._count)
            self._keep(b"(" + one * wide + b"l")
        elif self._lists and chance.random() < 0.1:
            at = b"h" + bytes([chance.choice(self._lists)])
            self._keep(at + (at if chance.random() < 0.5 else one) + b"a")
        else:
            self._keep(
                chance.choice(
                    [one + one + b"\x86", one + self._any() + b"\x86", b"(" + one * wide + b"t", self._dict(wide)]
                )
            )

    def _keep(self, made: bytes) -> None:
        """Add opcodes that push an object, and store it in the memo."""
        if self._count < _KEPT:
            self._written += made + b"q" + bytes([self._count]) + b"0"
            self._count += 1

    def _any(self) -> bytes:
        """Return the opcode that pushes an entry of the memo, mostly the last one."""
        chance = self._chance
        last = self._count - 1
        at = last if chance.random() < 0.6 else chance.randrange(0 if self._wild else min(1, last), last + 1)
        return b"h" + bytes([at])

    def _dict(self, wide: int) -> bytes:
        members = (b"J" + struct.pack("<i", number) + self._any() for number in range(wide))
        key = self._any()
        return b"(" + (b"".join(members) if not self._wild else (key + self._any()) * wide) + b"d"

    def _called(self) -> bytes:
        chance = self._chance
        arguments = b"".join(self._any() for _ in range(chance.randrange(4)))
        return chance.choice(_CALLED) + (b"(" + arguments + b"t" if chance.random() < 0.8 else self._any()) + b"R"

    def _filled(self) -> bytes:
        state = b"".join(self._any() for _ in range(5))
        return self._chance.choice([b"cnumpy\ndtype\n", _CALLED[5]]) + b"X\2\0\0\0f4\x85R(" + state + b"tb"


def _unions(path: Path, image: bytes, chance: Random) -> None:
    values = [_serialized(_with_image(image, _union(chance), chance)) for _ in range(chance.randrange(1, 4))]
    values = [_changed(value, chance) if chance.random() < 0.3 else value for value in values]
    _lmdb(path, ((b"%d" % number, value) for number, value in enumerate(values)))


def _union(chance: Random) -> Any:
    """Return a union that has one element many times: a number, a text, bytes, or a list of such unions."""
    leaf: Any = chance.choice(
        [
            lambda: ("2", pa.array([7])),
            lambda: ("5", pa.array(["x" * chance.choice(_LONG)])),
            lambda: ("4", pa.array([b"x" * chance.choice(_LONG)])),
            lambda: chance.choice([("15", pa.array([chance.choice([0, 1, -1, 1 << 40])])), ("14", pa.array(["text"]))]),
        ]
    )()
    made = _pointing(*leaf, chance)
    for _ in range(chance.choice([0, 1, 2, 3, 8, 20])):
        lists = pa.ListArray.from_arrays(pa.array([0, len(made)], pa.int32()), made)
        made = _pointing("10", lists, chance)
    return made


def _pointing(name: str, child: Any, chance: Random) -> Any:
    width = chance.choice(_WIDE)
    places = [0] * width
    if chance.random() < 0.03:
        places[chance.randrange(width)] = chance.choice([1, -1, 1 << 30])
    return _dense([1] * width, places, ["0", name], child)


def _dense(codes: list[int], places: list[int], names: list[str], *children: Any) -> Any:
    buffers = [None, pa.array(codes, pa.int8()).buffers()[1], pa.array(places, pa.int32()).buffers()[1]]
    all_children = [pa.nulls(0), *children]
    fields = [pa.field(name, child.type) for name, child in zip(names, all_children, strict=True)]
    return pa.UnionArray.from_buffers(pa.dense_union(fields), len(codes), buffers, children=all_children)


def _with_image(image: bytes, inner: Any, chance: Random) -> Any:
    lists = pa.ListArray.from_arrays(pa.array([0, len(inner)], pa.int32()), inner)
    row = _dense([1, 2, 3], [0, 0, 0], ["0", "4", "2", "10"], pa.array([image]), pa.array([1]), lists)
    return _dense([1], [0], ["0", "10"], pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), row))


def _serialized(column: Any) -> bytes:
    stream = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([column], ["list"])
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return struct.pack("<4i", 0, 0, 0, 0) + stream.getvalue() + bytes(-(16 + stream.tell()) % 64)


def _arrow(path: Path, image: bytes, chance: Random) -> None:
    columns = {f"c{number}": _column(chance) for number in range(chance.randrange(1, 4))}
    table = pa.table({**_images(image), **columns})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    if chance.random() < 0.5:
        _change(path, chance)


def _parquet(path: Path, image: bytes, chance: Random) -> None:
    rows = chance.choice([3, 10, 100])
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * chance.choice(_LONG)]))
    lists = pa.array([[1] * chance.choice(_WIDE)] * rows)
    table = pa.table({**_images(image, rows), "text": text, "lists": lists})
    if chance.random() < 0.5:
        table = table.cast(
            pa.schema([*(table.schema.field(n) for n in range(2)), ("text", pa.string()), ("lists", lists.type)])
        )
    compression = chance.choice(["none", "snappy", "zstd"])
    pq.write_table(table, path, compression=compression, use_dictionary=chance.random() < 0.8)
    if chance.random() < 0.5:
        _change(path, chance)


def _images(image: bytes, rows: int = 3) -> dict[str, Any]:
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    images = [{"bytes": image, "path": f"{number}.png"} for number in range(rows)]
    return {"image": pa.array(images, kind), "label": pa.array([0] * rows)}


def _column(chance: Random) -> Any:
    """Return three rows with many values in few bytes."""
    each = chance.choice([10, 1000, 1_000_000, 500_000_000])
    return chance.choice([_nothings, _runs, _views, _repeated, _numbered])(each, chance)


def _nothings(each: int, chance: Random) -> Any:
    kind = chance.choice([pa.null(), pa.struct([])])
    child = pa.Array.from_buffers(kind, 3 * each, [None])
    if chance.random() < 0.7:
        return _three(child, each)
    return pa.Array.from_buffers(pa.list_(kind, each), 3, [None], children=[child])


def _runs(each: int, chance: Random) -> Any:
    each = min(each, (1 << 30) // 3)
    return _three(pa.RunEndEncodedArray.from_arrays(pa.array([3 * each], pa.int32()), pa.array(["x" * 1000])), each)


def _views(each: int, chance: Random) -> Any:
    values: Any = pa.array([1, 2, 3])
    for _ in range(chance.choice([1, 5, 12, 30])):
        values = pa.ListViewArray.from_arrays(pa.array([0] * 3, pa.int32()), pa.array([3] * 3, pa.int32()), values)
    return values


def _numbered(each: int, chance: Random) -> Any:
    """Return indices that all refer to one text of a dictionary; each row is a list if it has several."""
    each = min(each, 1_000_000)
    text = pa.array(["x" * chance.choice(_LONG)])
    numbers = pa.DictionaryArray.from_arrays(pa.array([0] * 3 * each, pa.int8()), text)
    return _three(numbers, each)


def _repeated(each: int, chance: Random) -> Any:
    text = pa.array(["x" * chance.choice(_LONG)])
    return (
        pa.DictionaryArray.from_arrays(pa.array([0] * 3), text)
        if chance.random() < 0.5
        else text.take(pa.array([0, 0, 0]))
    )


def _three(child: Any, each: int) -> Any:
    ends = pa.array([0, each, 2 * each, 3 * each], pa.int32() if each < 1 << 29 else pa.int64())
    kind = pa.list_ if each < 1 << 29 else pa.large_list
    return pa.Array.from_buffers(kind(child.type), 3, [None, ends.buffers()[1]], children=[child])


def _shared_pages(path: Path, image: bytes, chance: Random) -> None:
    large = image + bytes(chance.choice([1 << 13, 1 << 17, 1 << 20]))
    count = chance.choice([3, 30, 300]) if len(large) < 1 << 18 else 3
    _lmdb(path, [(b"%04d" % number, large if number < 2 else image + bytes(3000)) for number in range(count)])
    data = bytearray(path.read_bytes())
    found = [*_own_pages(data)]
    for node, place in found:
        if found and chance.random() < 0.8:
            first, page = chance.choice(found)
            data[node : node + 4], data[place : place + 8] = data[first : first + 4], data[page : page + 8]
    path.write_bytes(data)
    if chance.random() < 0.3:
        _change(path, chance)


def _own_pages(data: bytes) -> Iterable[tuple[int, int]]:
    """Yield the offsets of the nodes of large values, and of the page numbers in them."""
    for start in range(0, len(data), PAGE):
        _, _, flags, lower, _ = PAGE_HEADER.unpack_from(data, start)
        if flags == P_LEAF:
            for pointer in struct.unpack_from(f"<{(lower - PAGE_HEADER.size) // 2}H", data, start + PAGE_HEADER.size):
                _, _, kind, key_size = NODE_HEADER.unpack_from(data, start + pointer)
                if kind & F_BIGDATA:
                    yield start + pointer, start + pointer + NODE_HEADER.size + key_size


def _messages(path: Path, image: bytes, chance: Random) -> None:
    value = b"\xd9\x40" + b"x" * 64
    for _ in range(chance.choice([1, 5, 31, 33, 300])):
        width = chance.choice([1, 1, 2, 3, 200])
        value = b"\xdc" + struct.pack(">H", width) + value * min(width, 1 + (1 << 14) // len(value))
        value = b"\xdd" + struct.pack(">I", chance.choice([1, 1, 1, 1 << 16, 1 << 31])) + value
    pair = b"\xa5image\xc6" + struct.pack(">I", len(image)) + image
    path.write_bytes((b"\x83" + pair + b"\xa5label\x01" + b"\xa1v" + value) * chance.randrange(1, 4))


def _lmdb(path: Path, items: Iterable[tuple[bytes, bytes]]) -> None:
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 26) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, value in items:
            transaction.put(key, value)


def _change(path: Path, chance: Random) -> None:
    path.write_bytes(_changed(path.read_bytes(), chance))


def _changed(data: bytes, chance: Random) -> bytes:
    """Return bytes in which four bytes are replaced by a number, up to ten times; most numbers are small."""
    made = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 10])):
        at = chance.randrange(max(1, len(made) - 4))
        made[at : at + 4] = struct.pack("<I", chance.choice([0, 1, 2, 300, 1 << 16, 1 << 31, at, np.iinfo("u4").max]))
    return bytes(made)


REFERRING: dict[str, Callable[[Path, bytes, Random], None]] = {
    "pickles": _pickles,
    "pyarrow": _unions,
    "shared pages": _shared_pages,
    "arrow": _arrow,
    "parquet": _parquet,
    "msgpack": _messages,
}
"""The function that writes a file, by the kind of its content."""

SUFFIXES = {"arrow": ".arrow", "parquet": ".parquet", "msgpack": ".msgpack"}
"""The suffix of files of a kind, where it is not ``.lmdb``."""
