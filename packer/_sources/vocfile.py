"""One file of annotations in Pascal VOC's format."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from packer._fields import MARGIN
from packer._sources.textfiles import encoding_of
from packer._storage.opening import open_regular
from packer.errors import SourceError, printable

__all__ = ["Annotation", "read_annotation"]

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_FARTHEST = 1e30  # pixels; boxes are float32
_FLAGS: dict[str | None, int] = {"0": 0, "1": 1}
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]{0,40})["']""")
_UTF_16 = {b"<\0?\0": "utf-16-le", b"\0<\0?": "utf-16-be"}  # without a byte order mark
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"}
_NO_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
_REMEDY = "Correct the file, or take the object out of it."


@dataclass(frozen=True, slots=True)
class Annotation:
    """What a file says.

    Attributes
    ----------
    text : bytes
        The whole file as JSON, in the shape that torchvision's ``VOCDetection`` gives.
    names : list of str
        The classes of the objects.
    boxes : list of list of float
        Their boxes xmin ymin xmax ymax, as the file has them.
    said : list of dict of str to int
        Their members that are 0 or 1, such as ``difficult``.
    """

    text: bytes
    names: list[str]
    boxes: list[list[float]]
    said: list[dict[str, int]]

    def flags(self, name: str) -> list[int | None]:
        """Return what each object says of a flag; None where it says nothing."""
        return [one.get(name) for one in self.said]


class _ProblemError(ValueError):
    """What a file says is no annotation; the message says why."""


def read_annotation(path: Path) -> Annotation:
    """Read a file.

    Raises
    ------
    SourceError
        If it cannot be read, is no XML, declares entities, or has an object without a name or a box in its image.
    """
    try:
        with open(open_regular(path), "rb") as file:
            root = _parsed(_in_utf_8(file.read()))
        return _annotation(root)
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error
    except (expat.ExpatError, RecursionError) as error:
        raise SourceError(f"{printable(path)}: it is no XML: {error}") from error
    except _ProblemError as error:
        raise SourceError(f"{printable(path)}: {printable(error)}. {_REMEDY}") from error


def _in_utf_8(data: bytes) -> bytes:
    """Return XML in UTF-8, whatever encoding it says that it has: expat knows four, and of others bytes alone."""
    said = encoding_of(data)
    declared = _DECLARED.match(data)
    if said != "utf-8-sig" or data.startswith(codecs.BOM_UTF8) or data[:4] in _UTF_16:
        encoding = _UTF_16.get(data[:4], said)
    else:
        encoding = "utf-8" if declared is None else declared[1].decode("ascii")
        if encoding.lower().startswith(("utf-16", "utf-32", "ucs-")):  # which the declaration itself is not in
            encoding = "utf-8"
    try:
        known = codecs.lookup(encoding).name
        if known in _NO_CHARSETS:
            raise LookupError(encoding)
        return _decoded(data, known).encode("utf-8")
    except LookupError:
        raise _ProblemError(
            f"it says that its encoding is {encoding}, which is not known here. Save it as UTF-8"
        ) from None
    except UnicodeError as error:
        raise _ProblemError(f"it is no text in the encoding {encoding}: {error}. Save it as UTF-8") from None


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        if encoding not in _WIDER:
            raise
        return data.decode(_WIDER[encoding])  # which many tools write, and call by the older name


def _parsed(data: bytes) -> ElementTree.Element:
    """Parse XML in UTF-8, whatever it says of its encoding, and without a DTD.

    A DTD may declare entities that grow without end, or that lie in other files.
    """

    def refuse(*declared: Any) -> None:
        raise _ProblemError("it has a DTD, which is not read")

    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(data, True)
    return builder.close()


def _annotation(root: ElementTree.Element) -> Annotation:
    if root.tag != "annotation":
        raise _ProblemError(f"its first element is {root.tag!r}, and VOC's is annotation")
    objects = root.findall("object")
    size = _size(root)
    names, boxes = [], []
    for number, one in enumerate(objects, 1):
        name = (one.findtext("name") or "").strip()
        if not name:
            raise _ProblemError(f"object {number} has no name")
        names.append(name)
        boxes.append(_box(one, f"object {number} ({name})", size))
    said = [{member.tag: _FLAGS[member.text] for member in one if member.text in _FLAGS} for one in objects]
    text = json.dumps({"annotation": _members(root)}, ensure_ascii=False, separators=(",", ":"))
    return Annotation(text.encode("utf-8"), names, boxes, said)


def _members(element: ElementTree.Element) -> Any:
    """Return an element as JSON: its text, or its members by their names, lists where there are several of a name."""
    children: dict[str, list[Any]] = {f"@{name}": [value] for name, value in element.attrib.items()}
    for child in element:
        children.setdefault(child.tag, []).append(_members(child))
    text = (element.text or "").strip()
    if not children and element.tag != "annotation":
        return text
    members = {name: found[0] if len(found) == 1 else found for name, found in children.items()}
    members |= {"#text": text} if text else {}
    return members | {"object": children.get("object", [])} if element.tag == "annotation" else members


def _size(root: ElementTree.Element) -> tuple[float, float] | None:
    """Return the width and the height that the file says; None where it says none, or 0 as some tools do."""
    sides = [_number(root.findtext(f"size/{name}")) for name in ("width", "height")]
    return (sides[0], sides[1]) if sides[0] and sides[1] else None


def _box(element: ElementTree.Element, what: str, size: tuple[float, float] | None) -> list[float]:
    sides = [_number(element.findtext(f"bndbox/{name}")) for name in _SIDES]
    box = [side for side in sides if side is not None]
    if len(box) != 4:
        raise _ProblemError(f"{what} has no bndbox of four numbers {' '.join(_SIDES)}")
    left, top, right, bottom = box
    if right < left or bottom < top:
        raise _ProblemError(f"{what}: its box {box} ends before it begins: boxes are {' '.join(_SIDES)}")
    if size is None:
        return box
    if min(left, top) < -MARGIN or right > size[0] + MARGIN or bottom > size[1] + MARGIN:
        raise _ProblemError(f"{what}: its box {box} lies outside of the image of {size[0]:g} x {size[1]:g} pixels")
    return box


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if abs(number) <= _FARTHEST else None  # which NaN is not
