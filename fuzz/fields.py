"""Fields of the packs that are forged, and values that no field should have."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from packer._fields import Field
from packer._sources.base import BlobColumn, NumberColumn, Source

TEMPLATES = (
    *("../masks/{stem}.png", "{path}.png", "{dir}/{name}/x", "{class}.png", "../" * 12 + "{stem}", "/tmp/{stem}"),
    *("..", ".", "~/{stem}", "C:/{stem}", "{dir}/../../{stem}", "{stem}/..", "./{path}"),
    *("", "{", "{0}", "{path!r}", "{path:>99999999}", "{unknown}", "a\0{stem}", "{path}" * 5000, "../images/{path}"),
    *("../x/{path}", "../age/{path}.bin", "metadata.jsonl", "labels.csv/{stem}", "packer-export.lock", "\x1b[2J{stem}"),
)  # fmt: skip


def with_fields(source: Source) -> Source:
    """Return a source of images with fields of every kind; every third image has no values."""
    count = np.arange(len(source))
    missing = count % 3 == 2

    def blobs(field: Field, *values: Any) -> BlobColumn:
        stored = [field.encode(value) for value in values]
        return BlobColumn.of(field, (None if missing[i] else bytes(stored[i % len(stored)]) for i in count.tolist()))  # type: ignore[arg-type]

    def mask(index: int) -> bytes | None:
        with Image.open(source.path(index)) as image:
            return None if missing[index] else _png(Image.new("L", image.size, index))

    return source.having(
        NumberColumn(Field("age", "scalar", "float32"), count.astype("<f4"), missing),
        NumberColumn(Field("seen", "scalar", "bool"), (count % 2).astype("u1"), missing),
        NumberColumn(Field("kind", "class", classes=("red", "green"), ids=(3, 7)), np.where(count % 2, 3, 7), missing),
        BlobColumn.of(Field("mask", "mask", file="../masks/{stem}.png"), map(mask, count.tolist())),
        blobs(Field("tags", "labels", classes=("a", "b")), [0, 1], []),
        blobs(Field("caption", "text"), "some text", ""),
        blobs(Field("about", "json"), {"a": [1, None]}, 3),
        blobs(Field("raw", "bytes", file="{path}.bin"), b"\0\xff" * 40),
        blobs(Field("vector", "array", "float16", 1), np.arange(5, dtype=np.float16)),
        blobs(Field("boxes", "boxes"), [[0, 1, 9, 8]], []),
        blobs(Field("points", "keypoints"), [[[1, 2, 1]]]),
    )


def odd_value(chance: Random) -> bytes:
    """Return bytes that are no value of most kinds."""
    return chance.choice(_ODD)


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "png")
    return stream.getvalue()


_ODD = [
    *(b"", b"\0", b"\xff\xfe\xfd", b"1234567", b"[" * 50_000, b'{"a":' * 2000, b"NaN", b"1e999"),
    *(b'"\\ud800"', b"9" * 5000),
    *(np.array(numbers, "<i8").tobytes() for numbers in ([-1], [2**62], [2**62, 4], [0, 2**62], [1, 1], [3])),
    *(np.array(numbers, "<f4").tobytes() for numbers in ([np.nan] * 4, [np.inf] * 4, [9, 9, 1, 1])),
    np.array([-1e30, 0, 1e30, 1], "<f4").tobytes(),
    *(_png(Image.new("L", size)) for size in ((1, 1), (9000, 1), (56, 40))),
    _png(Image.new("L", (56, 40)))[:50],
    "\x1b[2J\u202e\n".encode(),
]  # fmt: skip
