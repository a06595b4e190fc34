"""What can be wrong in a pack: numbers, names, members of a manifest, files, images."""

from __future__ import annotations

import copy
import errno
import io
import itertools
import json
import os
import shutil
import struct
import zipfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fuzz.fields import TEMPLATES, odd_value
from packer._fields import DTYPES, KINDS

Columns = dict[str, npt.NDArray[Any]]

_ESCAPE = "\x1b[2J\x1b]0;title\x07\r\u202e\n"
_RAW = {f"@raw {number}@": text for number, text in enumerate(
    ["NaN", "-Infinity", "1e400", "-0.0", "1" * 5000, "[" * 100_000 + "]" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000]
)}  # fmt: skip
"""What stands in a manifest's text as it is, by what stands for it before."""

_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), 10**400, 0.5, -1.5, 1e308),
    *("", "\0", "..", "a", "keep", "raw", "apply", "lmdb", "parts", "x" * 70_000, _ESCAPE, "\ud800", "\udcff", "{0}%s"),
    *([], {}, [[]], [None], [1, 2], [_ESCAPE], ["\ud800"], {"a": 1}, {_ESCAPE: _ESCAPE}, {"": []}, [[0, 0]] * 5000),
    *(list(range(100_000)), [["x", -1, "y"]], {"name": 3}, [{"name": _ESCAPE, "reason": _ESCAPE}] * 30),
    *_RAW,
]
_HOLES = 3 << 30  # bytes: more than a process may take, and few enough to be read in seconds
_MEMBERS = [
    "note",
    _ESCAPE,
    "crc32c",
    "\ud800",
    "parts",
    "files",
    "names",
    "shards",
    "exif",
    "tiles",
    "tiled",
    "schema",
    "fields",
    "file",
]
_NUMBERS = [0, 1, 2, -1, -2, 255, 65_535, 65_536, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63)]
_NAMES = [
    *(b"", b"a", b"a/b", b"a/../b", b"../x", b"a\0b", b"a//b", b"./a", b"a/.", b"a/", b"..\\x", b"C:\\x", b"con"),
    *(b"\xff\xfe", b"\xed\xa0\x80", _ESCAPE.encode(), b"\n", b'",', b"'", b"-rf", b"labels.csv", b"a" * 256),
    *(b"n" * 70_000, b"d/" * 400 + b"x", b"d/" * 30 + b"x", b"A/x", b"a/x", b"class_00", b"class_01/x"),
    *("\u00e9/x".encode(), "e\u0301/x".encode()),
]  # fmt: skip


def lie_in_table(columns: Columns, chance: Random) -> None:
    """Change some numbers of a table, or the lengths of its columns."""
    numbers = [name for name in columns if name != "names"]
    for _ in range(chance.choice([1, 1, 2, 4])):
        column = columns[chance.choice(numbers)]
        if len(column):
            row = slice(None) if chance.random() < 0.1 else chance.randrange(len(column))
            column[row] = _number(column, chance)
    if chance.random() < 0.1:
        rows = chance.randrange(len(columns["label"]) + 1)
        for name in numbers if chance.random() < 0.7 else [chance.choice([*columns])]:
            columns[name] = columns[name][:rows]


def _number(column: npt.NDArray[Any], chance: Random) -> Any:
    if column.dtype.kind == "f":
        return chance.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30])
    present = int(column[chance.randrange(len(column))])
    number = chance.choice([*_NUMBERS, present, present + 1, present - 1, present * 3, chance.getrandbits(64)])
    return np.array(number % 2**64, np.uint64).astype(column.dtype)  # what does not fit is cut off


def lie_in_names(columns: Columns, outside: str, chance: Random) -> None:
    """Give samples other names."""
    reached = [f"{outside}/x".encode(), b"../" * 12 + outside.encode()[1:] + b"/x"]
    starts = [0, *columns["name_end"].tolist()]
    blob = columns["names"].tobytes()
    names = [blob[start:end] for start, end in itertools.pairwise(starts)]
    for _ in range(chance.choice([1, 1, 2, 5])):
        names[chance.randrange(len(names))] = chance.choice([*_NAMES, *reached, *names])
    columns["names"] = np.frombuffer(b"".join(names), np.uint8).copy()
    columns["name_end"] = np.cumsum([len(name) for name in names], dtype=np.int64)


def list_files_often(document: dict[str, Any], columns: Columns, data: int, times: int) -> None:
    """Let a pack with parts list its files many times, with as many rows, so that no rows seem to overlap."""
    rows = len(columns["label"])
    for name in columns:
        columns[name] = np.tile(columns[name], times)
    columns["offset"] += np.repeat(np.arange(times) * data, rows)
    names = [f"class_00/{number}".encode() for number in range(rows * times)]
    columns["names"] = np.frombuffer(b"".join(names), np.uint8).copy()
    columns["name_end"] = np.cumsum([len(name) for name in names], dtype=np.int64)
    layout = document["layout"]
    layout["files"], layout["names"] = layout["files"] * times, len(columns["names"])
    layout["parts"] = [[part, count * times, seal] for part, count, seal in layout["parts"]]
    document["count"] = rows * times


def lie_in_document(document: dict[str, Any], chance: Random) -> None:
    """Change some members of a manifest, wherever they stand in it."""
    classes = document["classes"]
    if chance.random() < 0.15:
        document["classes"] = chance.choice(
            [
                [],
                classes[:1],
                classes * 2,
                [*classes, *map(str, range(20_000))],
                [_ESCAPE, "..", "/x", "a/b"],
                ["\udcff"] * 3,
            ]
        )
        return
    if chance.random() < 0.1:
        document["findings"] = {_ESCAPE: 3, "tiled": 2**70}
        document["versions"] = document["settings"][_ESCAPE] = {_ESCAPE: _ESCAPE}
        document["skipped"] = [{"name": _ESCAPE, "reason": _ESCAPE}] * 12
        return
    if document.get("fields") and chance.random() < 0.25:
        field = chance.choice(document["fields"])
        if chance.random() < 0.6:
            field["file"] = chance.choice(TEMPLATES)
        else:
            field[chance.choice(["kind", "dtype", "name"])] = chance.choice(
                [*KINDS, *DTYPES, "image", "images", _ESCAPE]
            )
        return
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        _change_in(document, chance)


def lie_in_layout(document: dict[str, Any], outside: str, chance: Random) -> None:
    """Change the list of a pack's files; where the format has none, make one, or change the settings."""
    files = [entry for name in ("parts", "files") for entry in document["layout"].get(name, [])]
    if files and chance.random() < 0.6:
        name = str(chance.choice(files)[0])
        elsewhere = [f"{outside}/secret.bin", "../outside/secret.bin", "/dev/zero", "", ".", "..", "\0", _ESCAPE]
        same = [f"{name}/../{name}", f"./{name}", name + "/", name.replace("/", "//"), name]
        if chance.random() < 0.2:
            listed = document["layout"][chance.choice(["parts", "files"])]
            listed += copy.deepcopy(listed) * chance.choice([1, 100])
            return
        chance.choice(files)[0] = chance.choice([*elsewhere, *same, "manifest.json", "\udcff", "x" * 5000])
        return
    _change_in(document["layout" if document["layout"] or chance.random() < 0.5 else "settings"], chance)


def _value(chance: Random) -> Any:
    return copy.deepcopy(chance.choice(_VALUES))  # it may be changed later on


def _change_in(container: Any, chance: Random) -> None:
    keys = [*container] if isinstance(container, dict) else [*range(len(container))]
    if not keys:
        if isinstance(container, dict):
            container[chance.choice(_MEMBERS)] = _value(chance)
        else:
            container.append(_value(chance))
        return
    key = chance.choice(keys)
    if isinstance(container[key], dict | list) and chance.random() < 0.7:
        _change_in(container[key], chance)
    elif chance.random() < 0.1:
        del container[key]
    elif chance.random() < 0.1 and isinstance(container, dict):
        container[chance.choice(_MEMBERS)] = _value(chance)
    elif isinstance(container[key], int) and chance.random() < 0.4:
        container[key] += chance.choice([1, -1, 2**31, -(2**63)])
    else:
        container[key] = _value(chance)


def text_of(document: dict[str, Any]) -> bytes:
    """Return a manifest's text, with texts that are not JSON in the places that stand for them."""
    text = json.dumps(document, separators=(",", ":"))
    for stands_for, raw in _RAW.items():
        text = text.replace(f'"{stands_for}"', raw)
    return text.encode("ascii")


def lie_in_files(path: Path, outside: Path, chance: Random) -> None:
    """Replace a file of a pack by something else, cut it, let it grow by holes, or add a link to the pack."""
    if path.is_dir() and chance.random() < 0.3:
        added = path / chance.choice(["notes.txt", "shard-00009.pth", "folder"])
        os.symlink(chance.choice([outside / "secret.bin", outside, path, Path("/dev/zero"), Path("missing")]), added)
        return
    file = chance.choice(sorted(found for found in path.rglob("*") if found.is_file())) if path.is_dir() else path
    change = chance.choice(["cut", "cut", "grow", "holes", "away", "folder", "link", "link", "bomb", "bomb"])
    if change == "link" and file == path:  # where a pack lies is its reader's own decision
        change = "cut"
    if chance.random() < 0.02:
        change = chance.choice(["fifo", "zero"]) if file != path else "fifo"
    size = file.stat().st_size
    if change in ("cut", "grow"):
        os.truncate(file, chance.randrange(size + 1) if change == "cut" else size + chance.choice([1, 4096]))
    elif change == "holes":
        _add_holes(file)
    elif change == "bomb":
        _add_bomb(file)
    else:
        moved = outside / "moved"
        moved.unlink(missing_ok=True)
        shutil.move(file, moved)
        if change == "link":
            os.symlink(chance.choice([moved, outside / "secret.bin", Path("missing"), file, path.parent]), file)
        elif change == "folder":
            file.mkdir()
        elif change == "fifo":
            os.mkfifo(file)
        elif change == "zero":
            os.symlink("/dev/zero", file)


def _add_holes(file: Path) -> None:
    """Extend a file by a hole, unless this process may not make a file that large."""
    try:
        os.truncate(file, _HOLES)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise


def _add_bomb(file: Path) -> None:
    """Add a member to a zip that takes a thousand times its size, `_HOLES` bytes, when it is unpacked."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file, "a") as archive:
        compressor = zlib.compressobj(wbits=-15)
        block = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
        member = zipfile.ZipInfo(f"{file.stem}/data/{len(archive.namelist())}")
        archive.writestr(member, block * (_HOLES >> 20))
        member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, _HOLES  # readers use the central directory


def lie_about_values(data: list[list[bytes]], fields: list[str], columns: Columns, chance: Random) -> None:
    """Put values into a pack that are invalid in their fields; `fields` are those whose values are bytes."""
    for _ in range(chance.choice([1, 2, 5])):
        number, place = chance.randrange(len(data)), chance.randrange(len(fields))
        data[number][place + 1] = odd_value(chance)
        columns[f"field.{fields[place]}.size"][number] = len(data[number][place + 1])


def lie_about_images(data: list[list[bytes]], columns: Columns, chance: Random) -> None:
    """Put images that are no training images into a pack; half of the time with the size that they have."""
    for _ in range(chance.choice([1, 2, 5])):
        number = chance.randrange(len(data))
        (height, width), data[number][0] = chance.choice(_IMAGES)
        columns["size"][number] = len(data[number][0])
        if chance.random() < 0.5:
            columns["height"][number], columns["width"][number] = height, width


def _images() -> list[tuple[tuple[int, int], bytes]]:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n{} loop\n%%EOF\n"
    bitmap = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 1 << 20, 0, 0, 54, 40, 50_000, 50_000, 1, 24, 0, 0, 0, 0, 0, 0)
    metafile = struct.pack("<IHhhhhHIH", 0x9AC6CDD7, 0, 0, 0, 99, 99, 1440, 0, 0) + bytes(100)
    photo = Image.effect_noise((40, 32), 60).convert("RGB")
    kinds = [("JPEG", {}), ("PNG", {}), ("GIF", {}), ("TIFF", {}), ("WEBP", {}), ("ICO", {}), ("PPM", {}), ("BMP", {})]
    pages = {"save_all": True, "append_images": [photo] * 50}
    whole = [((32, 40), _encoded(photo, kind, **options)) for kind, options in [*kinds, ("TIFF", pages), ("PDF", {})]]
    cut = [(size, image[: len(image) * 2 // 3]) for size, image in whole]
    thin = [(1, 20_000), (20_000, 1), (1, 60_000), (70_000, 1)]
    extreme = [(size, _encoded(Image.new("RGB", size[::-1]), "PNG")) for size in thin]
    extreme += [(size, _encoded(Image.new("RGB", size[::-1]), "JPEG")) for size in thin[:3]]
    odd = [
        b"",
        b"\xff",
        b"\xff\xd8\xff",
        postscript,
        b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 32, 90) + postscript,
        bitmap,
    ]
    return [*whole, *cut, *extreme, *(((10, 10), image) for image in [*odd, metafile, b"\x89PNG\r\n\x1a\n"])]


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


_IMAGES = _images()
