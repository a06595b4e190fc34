"""Images with annotations in Pascal VOC's layout: ``Annotations/*.xml``, ``SegmentationClass``, ``ImageSets``.

Boxes keep the numbers in the files, as in torchvision's ``VOCDetection``. In VOC's own files, pixels are counted from
1, and xmax and ymax are the last column and row inside the box.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
import numpy.typing as npt

from packer._account import BadSamples
from packer._fields import MARGIN, Field
from packer._fields.encoding import encoded_json
from packer._sources.base import BlobColumn, Column, FileColumn, Source, some
from packer._sources.file_matching import account_for_split
from packer._sources.imagefolder import FilesOf, ImageRule, Walk, images_without_labels, subdirectories
from packer._sources.tables import encoding_of, file_text
from packer._storage.safe_open import open_regular
from packer.errors import SourceError, printable

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_FARTHEST = 1e30  # the largest coordinate in pixels, because boxes are float32
_FLAG_VALUES: dict[str | None, int] = {"0": 0, "1": 1}
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]{0,40})["']""")
_UTF_16 = {b"<\0?\0": "utf-16-le", b"\0<\0?": "utf-16-be"}  # without a byte order mark
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"}
_NO_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
_NOT_SAID = -1
_REMEDY = "Correct the file, or remove the object from it."


@dataclass(frozen=True, slots=True)
class Annotation:
    """The contents of a file of annotations.

    Attributes
    ----------
    text : bytes
        The whole file as JSON, in the form of torchvision's ``VOCDetection``.
    names : list of str
        The classes of the objects.
    boxes : list of list of float
        The boxes of the objects, xmin ymin xmax ymax, with the numbers of the file.
    switches : list of dict of str to int
        For each object, its members with the value 0 or 1, such as ``difficult``.
    """

    text: bytes
    names: list[str]
    boxes: list[list[float]]
    switches: list[dict[str, int]]

    def flags(self, name: str) -> npt.NDArray[np.int8]:
        """Return the value of a flag for each object; -1 for an object without it."""
        return np.array([one.get(name, _NOT_SAID) for one in self.switches], np.int8)


def read_annotation(path: Path) -> Annotation:
    """Read a file of annotations.

    Raises
    ------
    SourceError
        If the file cannot be read, is not XML, or has a DTD; if an object has no name or no box; or if a box is not
        inside of its image.
    """
    try:
        with open(open_regular(path), "rb") as file:
            root = _parsed(_in_utf_8(file.read()))
        return _annotation(root)
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error
    except (expat.ExpatError, RecursionError) as error:
        raise SourceError(f"{printable(path)}: it is not XML: {error}") from error
    except ValueError as error:
        raise SourceError(f"{printable(path)}: {printable(error)}. {_REMEDY}") from error


def _in_utf_8(data: bytes) -> bytes:
    """Convert XML of any declared encoding to UTF-8, because expat supports few multi-byte encodings."""
    marked = encoding_of(data)
    declared = _DECLARED.match(data)
    if marked != "utf-8-sig" or data.startswith(codecs.BOM_UTF8) or data[:4] in _UTF_16:
        encoding = _UTF_16.get(data[:4], marked)
    else:
        encoding = "utf-8" if declared is None else declared[1].decode("ascii")
        if encoding.lower().startswith(("utf-16", "utf-32", "ucs-")):  # wrong: the declaration was read as ASCII
            encoding = "utf-8"
    try:
        known = codecs.lookup(encoding).name
        if known in _NO_CHARSETS:
            raise LookupError(encoding)
        return _decoded(data, known).encode("utf-8")
    except LookupError:
        raise ValueError(f"it declares the encoding {encoding}, which Python does not know. Save it as UTF-8") from None
    except UnicodeError as error:
        raise ValueError(f"it is not text in the encoding {encoding}: {error}. Save it as UTF-8") from None


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        if encoding not in _WIDER:
            raise
        return data.decode(_WIDER[encoding])  # many tools write this encoding, but declare the older one


def _parsed(data: bytes) -> ElementTree.Element:
    """Parse XML in UTF-8, whatever encoding it declares. A DTD is an error.

    A DTD can declare entities that expand without limit, or that refer to other files.
    """

    def refuse(*declared: Any) -> None:
        raise ValueError("it has a DTD, which packer does not read")

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
        raise ValueError(f"its root element is {root.tag!r}, but it should be annotation")
    objects = root.findall("object")
    size = _size(root)
    names, boxes = [], []
    for number, one in enumerate(objects, 1):
        name = (one.findtext("name") or "").strip()
        if not name:
            raise ValueError(f"object {number} has no name")
        names.append(name)
        boxes.append(_box(one, f"object {number} ({name})", size))
    flags = [
        {member.tag: _FLAG_VALUES[member.text] for member in one if member.text in _FLAG_VALUES} for one in objects
    ]
    return Annotation(encoded_json({"annotation": _members(root)}), names, boxes, flags)


def _members(element: ElementTree.Element) -> Any:
    """Return an element as JSON: its text, or its members by name; members with the same name become a list."""
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
    """Return the width and the height in the file; None if one of them is missing, or is 0, as some tools write."""
    sides = [_number(root.findtext(f"size/{name}")) for name in ("width", "height")]
    return (sides[0], sides[1]) if sides[0] and sides[1] else None


def _box(element: ElementTree.Element, what: str, size: tuple[float, float] | None) -> list[float]:
    sides = [_number(element.findtext(f"bndbox/{name}")) for name in _SIDES]
    box = [side for side in sides if side is not None]
    if len(box) != 4:
        raise ValueError(f"{what} has no bndbox of four numbers {' '.join(_SIDES)}")
    left, top, right, bottom = box
    if right < left or bottom < top:
        raise ValueError(f"{what}: its box {box} ends before it begins: boxes are {' '.join(_SIDES)}")
    if size is None:
        return box
    if min(left, top) < -MARGIN or right > size[0] + MARGIN or bottom > size[1] + MARGIN:
        raise ValueError(f"{what}: its box {box} lies outside the image of {size[0]:g} x {size[1]:g} pixels")
    return box


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if abs(number) <= _FARTHEST else None  # None for NaN too


_VOC = [
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
]
_FLAGS = ("difficult", "truncated", "occluded")
_MASKS = {"mask": "SegmentationClass", "instance_mask": "SegmentationObject"}


def voc_source(
    root: Path,
    directory: Path,
    *,
    split: str | None = None,
    on_missing: str = "error",
    rule: ImageRule | None = None,
    files_of: FilesOf | None = None,
    bad: BadSamples | None = None,
    unlabeled: bool = False,
) -> Source:
    """List images with annotations in Pascal VOC's layout. All images get the label -1.

    Parameters
    ----------
    root : Path
        The directory of the images, or the directory that contains ``JPEGImages``.
    directory : Path
        The directory that contains ``Annotations``, such as ``VOCdevkit/VOC2012``.
    split : str, optional
        The file that lists the images and their order: ``train`` is ``ImageSets/Main/train.txt``, or
        ``ImageSets/Segmentation/train.txt`` if the first file is missing; ``Segmentation/train`` is always the second
        file. By default the source has all images, in the order of their names.
    on_missing : {"error", "skip"}
        What happens to images of the split whose files do not exist.
    rule : ImageRule, optional
        The rule that decides which files are images.
    files_of : callable, optional
        The same as for `imagefolder_source`.
    bad : BadSamples, optional
        Collects the images with unusable annotations; by default the first of them is an error.
    unlabeled : bool
        Whether the user has allowed images without annotations.

    Raises
    ------
    SourceError
        If a directory or a file is missing, or a file does not follow VOC's layout.
    """
    annotations = directory / "Annotations"
    if not os.path.isdir(annotations):
        raise SourceError(
            f"{printable(directory)}: it has no directory Annotations. Pass a directory such as VOCdevkit/VOC2012."
        )
    folder = "JPEGImages/" if os.path.isdir(root / "JPEGImages") else ""
    if not os.path.isdir(root / folder):
        raise SourceError(f"{printable(root)}: no such directory")
    walk, bad = Walk(root / folder, rule or ImageRule()), bad or BadSamples()
    images: dict[str, list[str]] = {}  # by their names without suffixes, which annotation files have too
    for image in walk.images_in():
        images.setdefault(PurePosixPath(image).stem, []).append(image)
    nested = _nested(root / folder, rule)
    if files_of is not None:
        own = files_of(f"{folder}{image}" for one in images.values() for image in one)
        nested = [image for image in nested if f"{folder}{image}" not in own]
    walk.account.left_out("image", "they are in subdirectories, where VOC has no images", nested)
    stems, notes = list(images), walk.notes()
    if split is not None:
        stems, missing = _chosen(directory, split, images, bad)
        others = [stem for stem in set(images).difference(stems) for _ in images[stem]]  # one for each image
        account_for_split(walk.account, split, others, missing, on_missing, printable(root / folder))
    if not stems:
        why = f": {bad.found[0]['reason']}" if bad.found else f", only in subdirectories: {some(nested)}" * bool(nested)
        chosen = "" if split is None else f" that the split {printable(split)} lists"
        raise SourceError(f"{printable(root / folder)}: no images ({rule or ImageRule()}) in it{chosen}{why}")
    present = {entry.name for entry in os.scandir(annotations)}
    stray = sorted(file for file in present if file.endswith(".xml") and file[:-4] not in images)
    walk.account.left_out("file", "it has annotations of an image that does not exist", stray)
    names = {image: f"{folder}{image}" for stem in stems for image in images[stem]}

    def annotation(image: str) -> Annotation | None:
        stem = PurePosixPath(image).stem
        if len(images[stem]) > 1:
            both = " and ".join(map(printable, images[stem][:2]))
            raise SourceError(
                f"{printable(root / folder)}: {both} have the same annotation file, {printable(stem)}.xml. Rename one."
            )
        return read_annotation(annotations / f"{stem}.xml") if f"{stem}.xml" in present else None

    usable = bad.usable(names, annotation, printable(annotations))
    stems, read = [PurePosixPath(image).stem for image in usable], list(usable.values())
    if not any(read):
        raise SourceError(f"{printable(annotations)}: none of the {len(stems):,} images has a file in this directory")
    without = [names[image] for image, one in usable.items() if one is None]
    walk.account.unlabeled("they have no file in Annotations, and their fields are null", without, chosen=unlabeled)
    if any(one and one.boxes for one in read):
        notes.append("boxes are unchanged from the files: VOC counts pixels from 1, and xmax, ymax are inside the box")
    columns = _of_objects(read, annotations, present, skip=bad.skip)
    columns += _of_masks(directory, stems, inside=bool(folder))
    listed = map(names.__getitem__, usable)
    return images_without_labels("voc", root, listed, walk, notes, columns=columns, doubts=tuple(bad.found))


def _nested(root: Path, rule: ImageRule | None) -> list[str]:
    """Return the images in subdirectories of `root`, except those in the directories of VOC's layout."""
    walk = Walk(root, rule or ImageRule())  # not that of the source, whose account would have hidden images as taken
    own = ("Annotations", "ImageSets", "JPEGImages", *_MASKS.values())
    folders = (folder for folder in subdirectories(root) if folder not in own and walk.enters(folder))
    return [image for folder in folders for image in walk.images_below(folder)]


def _chosen(directory: Path, split: str, images: Collection[str], bad: BadSamples) -> tuple[list[str], list[str]]:
    """Return the stems in a split, in its order, as two lists: the stems with an image, and those without an image."""
    folders = [""] if "/" in split else ["Main", "Segmentation"]
    paths = [directory / "ImageSets" / folder / f"{split}.txt" for folder in folders]
    path = next(filter(os.path.isfile, paths), None)
    if path is None:
        raise SourceError(
            f"{printable(directory)}: no split {printable(split)}: there is no file {printable(paths[0])}"
        )
    try:
        lines = file_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error}") from error
    chosen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name, problem = line.strip(), ""
        if name not in images and len(name.split()) > 1:
            problem = (
                "it has more than a name. Lists of one class name every image and whether it shows the class; pass a "
                "list such as train."
            )
        elif name and chosen.setdefault(name, number) != number:
            problem = f"{printable(name)} is named twice"
        if problem:
            bad.add(f"{path.name}, line {number}", SourceError(f"{printable(path)}, line {number}: {problem}"))
    return [stem for stem in chosen if stem in images], [stem for stem in chosen if stem not in images]


def _of_objects(
    read: Sequence[Annotation | None], annotations: Path, present: Iterable[str], *, skip: bool
) -> list[Column]:
    """Return the columns of the fields that the annotation files contain."""
    classes = _classes(read, annotations, present, skip=skip)
    category = Field("category", "labels", classes=tuple(classes), ids=tuple(range(1, len(classes) + 1)))
    columns: list[Column] = [
        BlobColumn.of(Field("annotation", "json"), (None if one is None else one.text for one in read)),
        _column(Field("boxes", "boxes"), read, lambda one: one.boxes),
        _column(category, read, lambda one: one.names),
    ]
    for flag in _FLAGS:
        if any((one.flags(flag) != _NOT_SAID).any() for one in read if one):
            columns.append(_column(Field(flag, "array", "int8", 1), read, methodcaller("flags", flag)))
    return columns


def _column(field: Field, read: Iterable[Annotation | None], value: Callable[[Annotation], Any]) -> Column:
    stored: Iterable[Any] = (None if one is None else field.encode(value(one)) for one in read)
    return BlobColumn.of(field, stored)


def _classes(read: Iterable[Annotation | None], annotations: Path, present: Iterable[str], *, skip: bool) -> list[str]:
    """Return VOC's own classes if these include the classes of all objects.

    Otherwise return the sorted class names in all annotation files, so that all splits get the same ids.
    """
    names = {name for one in read if one for name in one.names}
    if not names <= set(_VOC):
        for file in sorted(present):
            if file.endswith(".xml"):
                with contextlib.suppress(SourceError) if skip else contextlib.nullcontext():
                    names.update(read_annotation(annotations / file).names)
    return _VOC if names <= set(_VOC) else sorted(names)


def _of_masks(directory: Path, stems: Sequence[str], *, inside: bool) -> list[Column]:
    """Return the columns of the mask fields; the value of an image without a mask file is missing."""
    columns: list[Column] = []
    for name, folder in _MASKS.items():
        if not os.path.isdir(directory / folder):
            continue
        there = {entry.name for entry in os.scandir(directory / folder)}
        files = [f"{stem}.png" if f"{stem}.png" in there else None for stem in stems]
        if any(files):
            field = Field(name, "mask", file=f"{'' if inside else '../'}{folder}/{{stem}}.png")
            columns.append(FileColumn.of(field, directory / folder, files))
    return columns
