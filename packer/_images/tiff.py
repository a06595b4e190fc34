"""TIFF inspection: number and bit depth of the bands, libtiff's warnings, and directories that Pillow should not read.

Pillow reports only the bands and bits that it reads itself. For example, it reports three of four bands, 8 of 16 bits
in colour, and nothing at all for a TIFF of thirteen bands. So this module reads the first directory itself (TIFF 6.0,
sections 2 and 8).

Pillow lets libtiff write its warnings to stderr, without the name of the file, and some damage is reported only there.
So the lines that libtiff writes on the decoding thread are collected.

A directory, also in EXIF, refers to its values by offset, and many values may share the same bytes. Pillow copies the
bytes for each of these values, so a small file can use gigabytes of memory. Pillow also warns about each value that it
leaves out. The time in which Pillow joins the EXIF segments of a JPEG grows with the square of their number. So this
module checks an image before Pillow opens it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import PIL
from PIL import Image

from packer._table import Buffer
from packer.errors import ImageError

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS_PER_STRIP, STRIP_SIZES = 273, 274, 277, 278, 279
PLANAR, PREDICTOR = 284, 317
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_SIZES = 322, 323, 324, 325
EXTRA_SAMPLES, SAMPLE_FORMAT = 338, 339
"""Numbers of tags."""

_READ = frozenset(
    [
        *(WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, STRIP_OFFSETS, ORIENTATION, SAMPLES, ROWS_PER_STRIP),
        *(STRIP_SIZES, PLANAR, PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_SIZES, EXTRA_SAMPLES),
        SAMPLE_FORMAT,
    ]
)
_KINDS = {1: "B", 3: "H", 4: "I", 16: "Q"}
"""The types of whole numbers, and their codes in `struct`."""

_JPEG = 7  # a compression
_COLOURS = (2, 6)  # RGB and YCbCr, which have three bands by default
_NUMBERS = {1: "u", 2: "i", 3: "f"}  # kinds of numbers by SampleFormat
_SEPARATE = 2  # PlanarConfiguration: the bands are stored one after the other
_BLACK_IS_ZERO = 1
_MOST_ENTRIES = 4096


class TIFF(NamedTuple):
    """The first directory of a TIFF.

    Attributes
    ----------
    order : {"<", ">"}
        The byte order.
    long : bool
        Whether the file is a BigTIFF.
    tags : mapping of int to tuple of int
        The values of the tags that this module names.
    """

    order: str
    long: bool
    tags: Mapping[int, tuple[int, ...]]

    def value(self, tag: int, default: int) -> int:
        """Return the first value of a tag."""
        return self.tags.get(tag, (default,))[0]

    @property
    def bands(self) -> int:
        """The number of bands: how many numbers a pixel has."""
        jpeg = self.value(COMPRESSION, 1) == _JPEG and self.value(PHOTOMETRIC, 0) in _COLOURS
        return self.value(SAMPLES, 3 if jpeg else 1)

    @property
    def bits(self) -> int:
        """The number of bits of the widest number in a pixel."""
        return max(self.tags.get(BITS, (1,)))

    @property
    def kind(self) -> str:
        """The kind of the numbers: ``"u"``, ``"i"`` or ``"f"``."""
        return _NUMBERS.get(max(self.tags.get(SAMPLE_FORMAT, (1,))), "u")

    @property
    def is_uniform(self) -> bool:
        """Whether all bands have the same type of sample and the same number of bits."""
        return len(set(self.tags.get(BITS, (1,)))) == len(set(self.tags.get(SAMPLE_FORMAT, (1,)))) == 1

    @property
    def is_separate(self) -> bool:
        """Whether the bands are stored separately, each with all its pixels together."""
        return self.value(PLANAR, 1) == _SEPARATE and self.bands > 1

    @property
    def seen_by_pillow(self) -> int:
        """Number of bands that Pillow counts; it ignores extra separate bands without a declared meaning."""
        extra = self.tags.get(EXTRA_SAMPLES, ())
        return self.bands - len(extra) if self.value(PLANAR, 1) == _SEPARATE and not any(extra) else self.bands


def read(data: Buffer) -> TIFF | None:
    """Read the first directory of a TIFF; None for other files, or if the directory is damaged."""
    head = bytes(data[:16])
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or head[2:4] not in (b"*\0", b"\0*", b"+\0", b"\0+"):
        return None
    long = b"+" in head[2:4]
    pointer, number, entry = _structs(order, long)
    try:
        (at,) = pointer.unpack_from(data, pointer.size)
        (count,) = number.unpack_from(data, at)
        if count > _MOST_ENTRIES:
            return None
        view = memoryview(data)[at + number.size :][: count * entry.size]
        tags, left = {}, len(data)  # bytes that values may take: those of two tags do not overlap
        for start in range(0, len(view) - entry.size + 1, entry.size):
            tag, kind, length, _ = entry.unpack_from(view, start)
            if kind in _KINDS and length:
                code = f"{order}{length}{_KINDS[kind]}"
                inline = (size := struct.calcsize(code)) <= pointer.size
                begin = at + number.size + start + entry.size - pointer.size
                begin = begin if inline else pointer.unpack_from(data, begin)[0]
                if tag not in _READ or begin + size > len(data):
                    continue
                left -= size
                if left < 0:
                    return None
                tags[tag] = struct.unpack_from(code, data, begin)
    except (struct.error, OverflowError):
        return None
    return TIFF(order, long, tags)


def grey_copy(data: Buffer, tiff: TIFF, band: int | None) -> bytes:
    """Return a grey TIFF with the same samples: those of all bands, or of one separately stored band.

    If all numbers of a pixel are stored together, the width of the grey image is the TIFF's width times the number of
    bands.
    """
    tags, times = tiff.tags, 1 if band is not None else tiff.bands
    tiled = TILE_OFFSETS in tags
    offsets, sizes = (TILE_OFFSETS, TILE_SIZES) if tiled else (STRIP_OFFSETS, STRIP_SIZES)
    if band is not None:
        pieces = len(tags[offsets]) // tiff.bands
        own = slice(band * pieces, (band + 1) * pieces)
    else:
        own = slice(None)
    changed: dict[int, Sequence[int]] = {
        WIDTH: (tags[WIDTH][0] * times,),
        BITS: tags[BITS][:1],
        PHOTOMETRIC: (_BLACK_IS_ZERO,),
        SAMPLES: (1,),
        PLANAR: (1,),
        SAMPLE_FORMAT: tags.get(SAMPLE_FORMAT, (1,))[:1],
        offsets: tags[offsets][own],
    }
    if sizes in tags:
        changed[sizes] = tags[sizes][own]
    if tiled:
        changed[TILE_WIDTH] = (tags[TILE_WIDTH][0] * times,)
    same = {tag: tags[tag] for tag in (HEIGHT, COMPRESSION, ROWS_PER_STRIP, PREDICTOR, TILE_HEIGHT) if tag in tags}
    return _with_directory(data, tiff, same | changed)


def _with_directory(data: Buffer, tiff: TIFF, tags: Mapping[int, Sequence[int]]) -> bytes:
    """Return a TIFF with another first directory, which has the tags `tags` and is at the end of the file."""
    pointer, number, entry = _structs(tiff.order, tiff.long)
    file = bytearray(data)
    file += bytes(len(file) % 2)
    at = len(file)
    beyond = at + number.size + len(tags) * entry.size + pointer.size
    entries, values = b"", b""
    code = "Q" if tiff.long else "I"
    for tag, numbers in sorted(tags.items()):
        short = tag in (BITS, COMPRESSION, PHOTOMETRIC, SAMPLES, PLANAR, PREDICTOR, SAMPLE_FORMAT)
        kind, each = (3, "H") if short else (16 if tiff.long else 4, code)
        packed = struct.pack(f"{tiff.order}{len(numbers)}{each}", *numbers)
        if len(packed) > pointer.size:
            packed, values = pointer.pack(beyond + len(values)), values + packed
        head = struct.pack(f"{tiff.order}HH{code}", tag, kind, len(numbers))
        entries += head + packed.ljust(pointer.size, b"\0")
    file += number.pack(len(tags)) + entries + pointer.pack(0) + values
    pointer.pack_into(file, pointer.size, at)
    return bytes(file)


def _structs(order: str, long: bool) -> tuple[struct.Struct, struct.Struct, struct.Struct]:
    """Return the layouts of an offset, of the number of entries, and of an entry."""
    codes = ("Q", "Q", "HHQQ") if long else ("I", "H", "HHII")
    pointer, number, entry = (struct.Struct(order + code) for code in codes)
    return pointer, number, entry


_MOST_LINES = 16  # of an image
_LONGEST_LINE = 400  # bytes
_NAME_IN_PILLOW = "tempfile.tif"  # of all files

_lines = threading.local()


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect libtiff's messages on this thread in the ``with`` block; nested blocks share one list."""
    _listen()
    outer: list[str] | None = getattr(_lines, "now", None)
    _lines.now = [] if outer is None else outer
    try:
        yield _lines.now
    finally:
        _lines.now = outer


@functools.cache
def _listen() -> object:
    """Install a callback for libtiff's messages, and return the callback, or None if that is impossible.

    The callback must live as long as libtiff.
    """
    library = _library()
    if library is None:
        return None
    try:
        opened, c = ctypes.CDLL(str(library)), ctypes.CDLL(None)
        install, write = opened.TIFFSetErrorHandler, c.vsnprintf
    except (OSError, AttributeError):
        return None
    write.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p]

    def take(module: bytes | None, format: bytes, arguments: int) -> None:
        line = ctypes.create_string_buffer(_LONGEST_LINE)
        write(line, _LONGEST_LINE, format, arguments)
        where, message = (module or b"").decode("utf-8", "replace"), line.value.decode("utf-8", "replace")
        _take(message if where in ("", _NAME_IN_PILLOW) else f"{where}: {message}")

    taking = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)(take)
    install.argtypes, install.restype = [type(taking)], ctypes.c_void_p
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(taking))  # a thread may decode until the very end of the process
    install(taking)
    return taking


def _take(line: str) -> None:
    lines: list[str] | None = getattr(_lines, "now", None)
    if lines is None:  # the image is not packer's
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"{line.rstrip('.')}.\n")
    elif len(lines) < _MOST_LINES:
        lines.append(line.rstrip("."))


def _library() -> Path | None:
    """Return the path of the libtiff that this process has loaded for Pillow; None if libtiff is part of Pillow."""
    if os.name == "nt":
        return None
    own = Path(PIL.__file__).parent
    for directory in (own.parent / "pillow.libs", own / ".dylibs"):
        for path in sorted(directory.glob("libtiff*")):
            return path
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
            if "/libtiff" in line:
                return Path(line[line.index("/") :])
    return None


_ENTRY = 12  # bytes

UNITS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
"""Bytes of a value, by its type."""

_MOST_COPIED = 4  # times the size of the file
_MOST_LEFT_OUT = 64  # values of a directory
_MOST_SEGMENTS = 64  # of EXIF in a JPEG: 4 MB
_MOST_STARTS = 64  # of a TIFF in an AVIF: one of 10 files of 100 MB has these bytes by chance

_TIFF = re.compile(rb"II\*\0|MM\0\*|II\0\*|MM\*\0|II\+\0|MM\0\+")  # all signatures that Pillow accepts
_EXIF = re.compile(rb"(?:Exif\0\0){0,2}")
_MARKER = re.compile(rb"\xff([^\0\xff])")
_BARE_MARKERS = frozenset({0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)})  # RSTn, SOI, EOI, JPG, JPGn
_NUMBER_OF_PICTURES = 0xB001
_SOS, _APP1, _APP2 = 0xDA, 0xE1, 0xE2


def require_modest(data: Buffer, pages: int = 1) -> None:
    """Raise ImageError if Pillow should not open an image, because its metadata would cost too much.

    The directories of the first `pages` pages of a TIFF are examined. Pillow reads the EXIF of a PNG or a WebP later;
    `require_modest_exif` checks it. The EXIF of an AVIF is found only if it is contiguous, which is how programs write
    it.
    """
    view = memoryview(data)
    head = bytes(view[:16])
    if head.startswith(b"\xff\xd8\xff"):
        for tiff in _in_jpeg(view):
            _require_modest_tiff(memoryview(tiff))
    elif _TIFF.match(head):
        _require_modest_tiff(view, pages)
    elif head[4:8] == b"ftyp":
        for number, start in enumerate(_TIFF.finditer(view)):
            if number == _MOST_STARTS:
                raise ImageError(f"it contains more than {_MOST_STARTS} TIFF headers")
            _require_modest_tiff(view[start.start() :])


def require_modest_exif(info: dict[Any, Any]) -> None:
    """Raise ImageError if Pillow should not read the EXIF in the `info` of an image that it opened."""
    exif = info.get("exif")
    if exif is None and "Raw profile type exif" in info:
        exif = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
    if exif is not None:
        _require_modest_tiff(_without_prefix(exif))


def directory_entries(tiff: Buffer, order: str) -> range:
    """Return the offsets of the entries in the first directory of a TIFF that is not a BigTIFF.

    Raises
    ------
    struct.error
        If the TIFF ends before the directory.
    """
    (at,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, at)
    return range(at + 2, at + 2 + _ENTRY * count, _ENTRY)


def pictures_in(jpeg: Buffer) -> int:
    """Return the number of pictures from the index that phones and stereo cameras write into JPEGs; 1 without an index.

    The index is that of the Multi-Picture Format (CIPA DC-007): a TIFF directory, whose tag 0xB001 has the number.
    """
    _, index = _in_jpeg(memoryview(jpeg))
    try:
        order = {b"II": "<", b"MM": ">"}[index[:2]]
        for entry in directory_entries(index, order):
            tag, _, _, number = struct.unpack_from(f"{order}HHII", index, entry)
            if tag == _NUMBER_OF_PICTURES:
                return max(1, int(number))
    except (KeyError, struct.error):
        pass
    return 1


def _in_jpeg(view: memoryview) -> Iterator[bytes]:
    """Yield the joined EXIF of a JPEG, and its index of pictures, as Pillow finds them."""
    exif: list[bytes] = []
    pictures = b""
    at = 2
    while found := _MARKER.search(view, at):
        marker, at = found[1][0], found.end()
        if marker == _SOS or marker < 0xC0:
            break
        if marker in _BARE_MARKERS:
            continue
        end = at + max(2, int.from_bytes(view[at : at + 2], "big"))
        content = bytes(view[at + 2 : end]) if marker in (_APP1, _APP2) else b""
        if marker == _APP1 and content.startswith(b"Exif\0\0"):
            exif.append(content[6:])
        elif marker == _APP2 and content.startswith(b"MPF\0"):
            pictures = content[4:]
        at = end
    if len(exif) > _MOST_SEGMENTS:
        raise ImageError(f"its EXIF data have {len(exif)} segments; the limit is {_MOST_SEGMENTS}")
    yield bytes(_without_prefix(b"".join(exif)))
    yield pictures


def _without_prefix(exif: bytes) -> memoryview:
    start = _EXIF.match(exif)
    return memoryview(exif)[start.end() if start else 0 :]


def _require_modest_tiff(tiff: memoryview, pages: int = 1) -> None:
    """Raise ImageError if reading the first directories of a TIFF would cost too much."""
    order = "<" if tiff[:1].tobytes() == b"I" else ">"
    long = tiff[2:3].tobytes() == b"+"
    pointer, number, entry = _structs(order, long)
    try:
        (at,) = pointer.unpack_from(tiff, pointer.size)
        for _ in range(pages):
            (count,) = number.unpack_from(tiff, at)
            at += number.size
            end = min(at + count * entry.size, len(tiff))
            whole = end - (end - at) % entry.size
            _require_modest_values(entry.iter_unpack(tiff[at:whole]), len(tiff), pointer.size)
            (at,) = pointer.unpack_from(tiff, end)
    except (struct.error, OverflowError):  # the TIFF is cut short
        return


def _require_modest_values(entries: Iterator[tuple[int, ...]], size: int, inline: int) -> None:
    """Raise ImageError if reading a directory's values would cost too much; those up to `inline` bytes cost nothing."""
    claimed = copied = left_out = 0
    for _, kind, count, begin in entries:
        taken = count * UNITS.get(kind, 0)
        if taken <= inline:
            continue
        claimed += taken
        fits = begin + taken <= size
        copied += taken if fits else 0
        left_out += not fits or claimed > size
    if copied > _MOST_COPIED * size or left_out > _MOST_LEFT_OUT:
        raise ImageError(f"its metadata declare {claimed} bytes, too many for {size} bytes")


_PILLOW_BITS = {"I": 32, "F": 32}  # that Pillow reads of a sample, by the first letter of the mode; see `_read`
_SIZ = re.compile(rb"\xff\x4f\xff\x51.{38}", re.DOTALL)  # of a JPEG 2000, up to the parameters of the components
_AV1C = re.compile(rb"av1C\x81.(.)", re.DOTALL)
_HIGH_BITDEPTH = 0x40
_BYTE = 8
_MOST_BANDS = 6  # of a TIFF that Pillow opens; it logs complaints about others


class Depth(NamedTuple):
    """The bands and bits of a file's pixels.

    Attributes
    ----------
    bands : int
        Number of numbers per pixel; 1 for a palette index.
    bits : int
        Bits of the widest number.
    kind : {"u", "i", "f"}
        The kind of the numbers, as in the ``kind`` of NumPy's dtypes.
    hidden : int
        Number of bands that Pillow leaves out.
    """

    bands: int = 3
    bits: int = 8
    kind: str = "u"
    hidden: int = 0

    @property
    def is_deep(self) -> bool:
        """Whether the numbers are anything other than levels of 0 to 255."""
        return self.bits > _BYTE or self.kind != "u"

    @property
    def excess(self) -> str:
        """The bands and bits of an image that 8-bit RGB would lose, in words; empty if it loses none, or only alpha."""
        what = {"u": "", "i": "signed numbers of ", "f": "floats of "}[self.kind]
        bits = f"{what}{self.bits} bits a channel" if self.is_deep else ""
        if not self.hidden:
            return bits
        return f"{self.bands} bands" + (f" ({bits})" if bits else "")


def depth_of(image: Image.Image, data: Buffer) -> Depth:
    """Return the depth of an image that Pillow opened and did not load yet.

    Parameters
    ----------
    image : PIL.Image.Image
        The image opened from `data`.
    data : bytes-like
    """
    bands, bits, kind = len(image.getbands()), _BYTE, "u"
    directory = read(data) if image.format == "TIFF" else None
    if directory is not None:
        return Depth(directory.bands, directory.bits, directory.kind, max(0, directory.bands - bands))
    if image.mode == "F":
        bits, kind = 32, "f"
    elif image.format == "PNG":
        bits = int(data[24])
    elif image.mode.startswith("I"):
        bits = 16
    elif image.format == "PPM":
        bits = _bits_of_ppm(image)
    elif image.format == "JPEG2000":
        bits = max(_bits_of_jpeg2000(data), default=_BYTE)
    elif image.format == "AVIF":
        found = _AV1C.search(data)
        bits = 10 if found is not None and found[1][0] & _HIGH_BITDEPTH else _BYTE
    return Depth(bands, bits, kind)


def is_whole(image: Image.Image, depth: Depth) -> bool:
    """Tell whether Pillow reads all numbers of an image, with all their bits."""
    return not depth.hidden and depth.bits <= _read(image)


def require_all_bits(image: Image.Image, depth: Depth) -> None:
    """Raise ImageError if Pillow would return fewer bits or bands than the image has, or wrong numbers."""
    if depth.hidden:
        raise ImageError(
            f"it has {depth.bands} bands, of which Pillow reads {depth.bands - depth.hidden}. packer reads all "
            "bands only from TIFFs in grey, RGB or CMYK of 8, 16 or 32 bits without JPEG compression. "
            "mode='RGB' decodes such an image as ImageFolder does"
        )
    if not is_whole(image, depth):
        raise ImageError(
            f"it has {depth.bits} bits per channel, of which Pillow reads {_read(image)}: such a {image.format} "
            "can be decoded only as RGB"
        )
    if image.mode == "L" and depth.kind == "i":
        raise ImageError("it has signed numbers of 8 bits, and Pillow reads negative ones as 128 to 255")
    if image.mode == "I" and image.format == "TIFF" and depth.kind == "u":
        low, _ = image.getextrema()
        if isinstance(low, (int, float)) and low < 0:
            raise ImageError("it has unsigned numbers above 2147483647, which Pillow reads as negative ones")


def unreadable(data: Buffer) -> str | None:
    """Explain which bands and bits keep Pillow from reading an image; None if bands and bits are not the reason."""
    components = _bits_of_jpeg2000(data)
    if len(components) > 4:
        return _not_read("JPEG 2000", Depth(len(components), max(components)))
    directory = read(data)
    if directory is None or not {WIDTH, HEIGHT} <= directory.tags.keys():
        return None
    depth = Depth(directory.bands, directory.bits, directory.kind)
    return _not_read("TIFF", depth) if depth.is_deep or depth.bands not in (1, 3) else None


def require_few_bands(data: Buffer) -> None:
    """Raise ImageError for a TIFF with more bands than Pillow opens, before Pillow writes a line to its log."""
    directory = read(data)
    if directory is not None and directory.seen_by_pillow > _MOST_BANDS:
        raise ImageError(str(unreadable(data)))


def _not_read(format: str, depth: Depth) -> str:
    what = {"u": "", "i": "signed numbers of ", "f": "floats of "}[depth.kind]
    bands = f"{depth.bands} band{'s' * (depth.bands != 1)} (channel{'s' * (depth.bands != 1)})"
    remedy = "Save it with numbers of 8 or 16 bits, or with 32-bit floats"
    if depth.bands > 1:
        remedy = "Save one, three or four of its bands as an image"
    return (
        f"it is a {format} of {bands} of {what}{depth.bits} bits, which Pillow does not read. {remedy}; a "
        "field can store all of it: its numbers (`array`), or the file's bytes (`bytes`)"
    )


def _read(image: Image.Image) -> int:
    """Return the number of bits that Pillow reads of a sample."""
    return 16 if image.mode.startswith("I;16") else _PILLOW_BITS.get(image.mode[0], _BYTE)


def _bits_of_ppm(image: Image.Image) -> int:
    for tile in image.tile:  # type: ignore[attr-defined]
        arguments = tile[3]
        if isinstance(arguments, tuple) and len(arguments) == 2 and isinstance(arguments[1], int):
            return arguments[1].bit_length()
    return 1


def _bits_of_jpeg2000(data: Buffer) -> list[int]:
    """Return the bits of each component of a JPEG 2000; empty for other files."""
    head = bytes(data[:12])
    if not head.startswith((b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n")):
        return []
    found = _SIZ.search(data)
    if found is None:
        return []
    count = int.from_bytes(found[0][40:42], "big")
    parameters = bytes(data[found.end() : found.end() + 3 * count])
    return [1 + (depth & 0x7F) for depth in parameters[::3]]
