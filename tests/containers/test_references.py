"""Values that refer to one object many times, or to themselves, are refused if their full size exceeds a limit."""

from __future__ import annotations

import io
import itertools
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import packer
from packer._containers import find_container, named_paths
from packer._containers.contract import Entry, Piece
from packer._containers.hf_tables import row_lists
from packer._containers.listing import Listing, _blocks, list_samples
from packer._containers.safe_pickle import Budget
from packer._fields.coco import mask_of
from packer._fields.encoding import short
from packer._storage.lmdb_tree import F_BIGDATA, NODE_HEADER, P_LEAF, PAGE, PAGE_HEADER
from packer.errors import SourceError
from tests.containers import test_arrow, test_parquet, test_pickle_lmdb
from tests.containers.lmdbs import photos, write_lmdb

IMAGE = photos(1)[0]
MIB = 1 << 20


def program(*opcodes: bytes) -> bytes:
    return b"\x80\x04" + b"".join(opcodes) + b"."


def blob(data: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(data)) + data


def text(data: str) -> bytes:
    return b"X" + struct.pack("<I", len(data)) + data.encode()


def doubled(levels: int) -> bytes:
    """Return opcodes that push a nested tuple, each level of which contains the one below twice."""
    steps = (b"0h" + bytes([level]) + b"h" + bytes([level]) + b"\x86q" + bytes([level + 1]) for level in range(levels))
    return b"K\x01\x85q\x00" + b"".join(steps)


PAIR = blob(IMAGE) + b"K\x01"
THINGS = "expand to more than 100,000 objects"
BYTES = "its [0-9,]+ bytes expand to more than"
PICKLES: dict[str, tuple[bytes, str]] = {
    "tuples in tuples": (program(PAIR, doubled(17), b"\x87"), THINGS),
    "deep": (program(PAIR, doubled(48), b"\x87"), THINGS),
    "as a label": (program(blob(IMAGE), doubled(20), b"\x86"), THINGS),
    "wide": (pickle.dumps((IMAGE, 1, [[[0] * 500] * 500] * 500)), THINGS),
    "dicts": (
        pickle.dumps((IMAGE, 1, {"a": (d := {"b": [1] * 400}), **dict.fromkeys(map(str, range(400)), d)})),
        THINGS,
    ),
    "a text": (pickle.dumps((IMAGE, 1, ["x" * MIB] * 300)), BYTES),
    "bytes": (pickle.dumps((IMAGE, 1, [b"x" * MIB] * 300)), BYTES),
    "keys": (program(PAIR, text("k" * MIB), b"q\x010", b"]", b"(", *([b"}h\x01K\x01s"] * 300), b"e", b"\x87"), BYTES),
    "members": (pickle.dumps({"img": IMAGE, **dict.fromkeys(map("m{}".format, range(90)), "y" * MIB)}), BYTES),
    "fields of bytes": (pickle.dumps({"img": IMAGE, **dict.fromkeys(map("m{}".format, range(90)), b"y" * MIB)}), BYTES),
    "the image": (pickle.dumps(dict.fromkeys(["img", *map("m{}".format, range(90))], IMAGE + bytes(MIB))), BYTES),
    "a list in itself": (program(PAIR, b"]q\x00h\x00a", b"\x87"), "more than 50 deep"),
    "a dict in itself": (program(PAIR, b"}q\x00", text("x"), b"h\x00s", b"\x87"), "more than 50 deep"),
    "a name of a module": (program(PAIR, doubled(48), text("x"), b"\x93", b"\x87"), "a name that is not a short text"),
    "an encoding": (
        program(PAIR, b"c_codecs\nencode\n", text("x"), doubled(48), b"\x86R", b"\x87"),
        "not a short text",
    ),
    "what is encoded": (
        program(PAIR, b"c_codecs\nencode\n", doubled(48), text("latin1"), b"\x86R", b"\x87"),
        "damaged",
    ),
    "a dtype": (program(PAIR, b"cnumpy\ndtype\n", doubled(48), b"\x85R", b"\x87"), "not a short text"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_becomes_no_more_than_its_budget(tmp_path: Path, name: str) -> None:
    value, why = PICKLES[name]
    path = write_lmdb(tmp_path / "a.lmdb", [(b"%d" % number, value) for number in range(3)])
    with pytest.raises(SourceError, match=rf"(?s)a\.lmdb: (?:key ')?0'?: .*{why}"):
        packer.convert(path, tmp_path / "out.lmdb")


@pytest.mark.parametrize("kind", ["text", "scalar", "array"])
def test_what_later_samples_have_is_bounded_whatever_the_first_ones_have(tmp_path: Path, kind: str) -> None:
    """A later sample has a huge nested tuple where the first ones have a text, a number or an array."""
    first = {"text": "a", "scalar": 1, "array": np.arange(3)}[kind]
    items = [(b"%d" % number, pickle.dumps((IMAGE, 1, first))) for number in range(3)]
    path = write_lmdb(tmp_path / "a.lmdb", [*items, (b"1x", program(PAIR, doubled(48), b"\x87"))])
    with pytest.raises(SourceError, match=f"1x'?: .*{THINGS}"):
        packer.convert(path, tmp_path / "out.lmdb")


def test_a_list_of_keys_refers_to_keys_alone(tmp_path: Path) -> None:
    items = [(b"%d" % number, pickle.dumps((IMAGE, 1))) for number in range(3)]
    path = write_lmdb(tmp_path / "a.lmdb", [*items, (b"__keys__", pickle.dumps([b"k" * (4 * MIB)] * 1000))])
    with pytest.raises(SourceError, match="not a list of distinct keys"):
        packer.convert(path, tmp_path / "out.lmdb")


def test_what_pickle_itself_shares_is_read(tmp_path: Path) -> None:
    """A list or text that occurs often in a value is one object, which a pickle stores once and refers to."""
    box, caption = [1, 2, 3, 4], "a caption of some words"
    values = [(IMAGE, 1, {"boxes": [box] * 2000, "captions": [caption] * 2000})] * 2
    path = write_lmdb(tmp_path / "a.lmdb", [(b"%d" % number, pickle.dumps(one)) for number, one in enumerate(values)])
    packer.convert(path, tmp_path / "out.lmdb")
    with packer.open_dataset(tmp_path / "out.lmdb", fields=("item2",)) as dataset:
        assert dataset[1]["item2"] == values[1][2]


def shared_union(width: int, levels: int, leaf: pa.Array) -> pa.Array:
    """Return a dense union that has one list `width` times; that list has another one `width` times, and so on."""
    inner = pa.UnionArray.from_dense(
        pa.array([1] * width, pa.int8()), pa.array([0] * width, pa.int32()), [pa.nulls(0), leaf], ["0", "2"]
    )
    for _ in range(levels):
        ends = pa.array([0, width], pa.int32())
        lists = pa.ListArray.from_arrays(ends, inner)
        inner = pa.UnionArray.from_dense(
            pa.array([1] * width, pa.int8()), pa.array([0] * width, pa.int32()), [pa.nulls(0), lists], ["0", "10"]
        )
    return inner


def serialized(column: pa.Array) -> bytes:
    """Return what `pyarrow.serialize` wrote around a column of one row."""
    stream = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([column], ["list"])
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return struct.pack("<4i", 0, 0, 0, 0) + stream.getvalue() + bytes(-(16 + stream.tell()) % 64)


def with_image(inner: pa.Array) -> pa.Array:
    """Return the union of a list of an image, a label and a list."""
    children = [
        pa.array([IMAGE], pa.binary()),
        pa.array([1]),
        pa.ListArray.from_arrays(pa.array([0, len(inner)], pa.int32()), inner),
    ]
    offsets = pa.array([0, 0, 0], pa.int32())
    union = pa.UnionArray.from_dense(
        pa.array([1, 2, 3], pa.int8()), offsets, [pa.nulls(0), *children], ["0", "4", "2", "10"]
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), union)
    return pa.UnionArray.from_dense(
        pa.array([1], pa.int8()), pa.array([0], pa.int32()), [pa.nulls(0), lists], ["0", "10"]
    )


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        (lambda: shared_union(60, 3, pa.array([7])), THINGS),
        (lambda: shared_union(300, 0, pa.array(["x" * MIB])), BYTES),
        (lambda: shared_union(300, 0, pa.array([b"x" * MIB])), BYTES),
    ],
    ids=["lists", "texts", "bytes"],
)
def test_a_value_of_pyarrow_becomes_no_more_than_its_budget(
    tmp_path: Path, inner: Callable[[], pa.Array], why: str
) -> None:
    value = serialized(with_image(inner()))
    path = write_lmdb(tmp_path / "a.lmdb", [(b"%d" % number, value) for number in range(3)])
    with pytest.raises(SourceError, match=rf"a\.lmdb: (?:key ')?0'?: .*{why}"):
        packer.convert(path, tmp_path / "out.lmdb")


@pytest.mark.parametrize("number", [-1, -5, 1 << 40, "text"])
def test_the_number_of_an_array_is_one(tmp_path: Path, number: int | str) -> None:
    """The child "15" holds indices of the arrays after the batch. Others than existing indices are refused."""
    counts = pa.array([number])
    column = pa.UnionArray.from_dense(
        pa.array([1], pa.int8()), pa.array([0], pa.int32()), [pa.nulls(0), counts], ["0", "15"]
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
    whole = pa.UnionArray.from_dense(
        pa.array([1], pa.int8()), pa.array([0], pa.int32()), [pa.nulls(0), lists], ["0", "10"]
    )
    value = serialized(whole)
    with pytest.raises(ValueError, match=r"a damaged value of pyarrow"):
        test_pickle_lmdb.read(value, tmp_path, test_pickle_lmdb.deserialized)


def many(child: pa.Array, each: int) -> pa.Array:
    ends = pa.array([0, each, 2 * each, 3 * each], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.list_(child.type), 3, [None, ends], children=[child])


def views(levels: int) -> pa.Array:
    values = pa.array([1, 2, 3], pa.int32())
    for _ in range(levels):
        values = pa.ListViewArray.from_arrays(pa.array([0] * 3, pa.int32()), pa.array([3] * 3, pa.int32()), values)
    return values


ARROWS: dict[str, Callable[[], pa.Array]] = {
    "nulls": lambda: many(pa.Array.from_buffers(pa.null(), 3_000_000, [None]), 1_000_000),
    "empty structures": lambda: many(pa.Array.from_buffers(pa.struct([]), 3_000_000, [None]), 1_000_000),
    "list views": lambda: views(7),
    "run ends": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array(["x" * 100])),
    "run ends in lists": lambda: many(
        pa.RunEndEncodedArray.from_arrays(pa.array([3_000_000], pa.int32()), pa.array(["x" * 100])), 1_000_000
    ),
}


@pytest.mark.skipif(not hasattr(pa, "ListViewArray"), reason="this pyarrow has no views")
@pytest.mark.parametrize("name", ARROWS)
def test_a_column_of_arrow_becomes_no_more_than_its_buffers(tmp_path: Path, name: str) -> None:
    table = test_parquet.table({f"{number}.jpg": IMAGE for number in range(3)}, extra=ARROWS[name]())
    path = test_arrow.written(tmp_path / "a.arrow", table)
    with pytest.raises(SourceError, match=r"a\.arrow: .*(for a file of|does not read columns of)"):
        listed(path)


def listed(path: Path) -> Listing:
    found = find_container(named_paths(path))
    assert found is not None
    return list_samples(found[0].open(found[1], {}))


def test_rows_of_long_values_are_taken_a_few_at_a_time() -> None:
    """Indices into a dictionary count with the size of the text, and lists with the number of their values."""
    texts = pa.array(["x" * MIB] * 50)
    assert [len(one[0]) for one in row_lists([texts], 50)] == [3, *[3] * 15, 2]
    short_ones = pa.array(range(5000))
    assert [len(one[0]) for one in row_lists([short_ones], 5000)] == [1024] * 4 + [904]
    in_dictionary = pa.DictionaryArray.from_arrays(pa.array([0] * 50), pa.array(["x" * MIB]))
    assert all(len(one[0]) <= 4 for one in row_lists([in_dictionary], 50))
    nothing = many(pa.Array.from_buffers(pa.null(), 300_000_000, [None]), 100_000_000)
    assert [str(one) for one in row_lists([nothing], 3)] == [
        "it has 100,000,001 values and bytes; the limit is 67,108,864"
    ] * 3


def test_rows_of_numbers_have_the_values_of_their_dictionary() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1, 2] * 600, pa.int8()), pa.array(["a", "b", None]))
    structures = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 1500), pa.array([{"a": 1}, None]))
    ends = pa.array([*range(0, 3000, 2), 3000], pa.int32())
    some = pa.array([number % 7 == 0 for number in range(len(ends) - 1)])  # a missing list may have values
    lists = pa.ListArray.from_arrays(ends, texts, mask=some)
    large = pa.LargeListArray.from_arrays(pa.array([0, 0, 700, len(lists)], pa.int64()), lists)
    for array in (texts, structures, lists, large, pa.array([[1], None, []] * 500)):
        rows = [row for (values,) in row_lists([array], len(array)) for row in values]
        assert rows == array.to_pylist()


def test_a_text_in_a_dictionary_of_parquet_takes_the_memory_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a dictionary are read until their total size far exceeds the size of the file."""
    monkeypatch.setattr("packer._containers.listing._SHARED", (1 << 26, 2))
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int32()), pa.array(["x" * MIB]))
    table = test_parquet.table({f"{number}.jpg": IMAGE for number in range(500)}, text=column)
    path = test_parquet.written(tmp_path / "a.parquet", table, use_dictionary=["text"])
    with pytest.raises(
        SourceError,
        match=r"a\.parquet: its samples share the same bytes: .* have [0-9,]+ bytes together, more than 2 times",
    ):
        listed(path)


def test_keys_of_lmdb_may_share_pages_a_hundred_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer._containers.listing._SHARED", (MIB, 100))
    values = [IMAGE + bytes(5 * MIB), *[IMAGE + bytes(3000)] * 799]
    path = write_lmdb(tmp_path / "a.lmdb", [(b"%04d" % number, value) for number, value in enumerate(values)])
    assert len(listed(path)) == 800
    data = bytearray(path.read_bytes())
    share_the_first_value(data)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.lmdb: .* more than 100 times the [0-9,]+ bytes of the files"):
        listed(path)


def share_the_first_value(data: bytearray) -> None:
    """Point all values on overflow pages to the pages of the first one."""
    first = b""
    for start in range(0, len(data), PAGE):
        _, _, flags, lower, _ = PAGE_HEADER.unpack_from(data, start)
        if flags != P_LEAF:
            continue
        for pointer in struct.unpack_from(f"<{(lower - PAGE_HEADER.size) // 2}H", data, start + PAGE_HEADER.size):
            node = start + pointer
            _, _, node_flags, key_size = NODE_HEADER.unpack_from(data, node)
            place = node + NODE_HEADER.size + key_size
            if node_flags & F_BIGDATA:
                first = first or bytes(data[node : node + 4] + data[place : place + 8])  # its size, its page
                data[node : node + 4], data[place : place + 8] = first[:4], first[4:]


def test_samples_are_taken_in_blocks_of_bytes() -> None:
    """4,096 values of a megabyte would take 4 GB before the first of them is written."""
    entries = (Entry(f"{number}.jpg", Piece(0, 0, 1), None, {"note": bytes(4 * MIB)}) for number in range(100))
    assert [len(block) for block in _blocks(entries)] == [17] * 5 + [15]
    few = (Entry(f"{number}.jpg", Piece(0, 0, 1)) for number in range(5000))
    assert [len(block) for block in _blocks(few)] == [4096, 904]


def test_a_budget_says_what_it_allows() -> None:
    budget = Budget(1000, 10)
    budget.spend(1000, 10)
    with pytest.raises(ValueError, match="1,000 bytes expand to more than 10 objects"):
        budget.spend()
    with pytest.raises(ValueError, match="1,000 bytes expand to more than 4,195,304 bytes"):
        Budget(1000, 10).spend(5 << 20)


def test_a_value_is_shown_without_walking_all_of_it() -> None:
    value: Any = (1,)
    for _ in range(60):
        value = (value, value)
    assert len(short(value)) <= 61
    own: list[Any] = []
    own.append(own)
    assert short(own) == "[[[[...]]]]"
    assert short([1, 2]) == "[1, 2]"
    assert short({"a": "b"}) == "{'a': 'b'}"


def test_runs_whose_sum_overflows_are_no_mask() -> None:
    runs = np.array([*itertools.repeat(2**62, 4), 6], np.int64)
    with pytest.raises(ValueError, match="do not add up to 6 pixels"):
        mask_of(runs, 2, 3)
