"""Finds the container that reads the paths named by a user.

Containers are tried in the order of their registry. packer's own containers come before those of other packages. But if
only a container of another package has a pattern for the file's name, that container is tried first.

A directory of images may also contain a file of another tool, such as an archive or an array with the same images. Such
a directory still counts as a directory of images, as in ImageFolder. If a directory has files of several splits, such
as ``train-*.tar`` and ``val-*.tar``, it is refused, because a user hardly ever wants them as one set.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, overload

from packer._account import Account
from packer._codecs import IMAGE_SUFFIXES
from packer._containers.contract import Container, head_of, natural
from packer._table import Names
from packer.errors import MissingDependencyError, PackerError, SourceError, option, printable, warn
from packer.plugins import CONTAINERS, ContainerDescriptor

_T = TypeVar("_T")

Found = tuple[type[Container], list[Path]]
"""A container, and the paths that its `open` takes."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_SUBDIRECTORIES = 100
"""The number of subdirectories in which `containers_near` looks for files."""

TRAINING_SPLITS = ("train", "training", "trainval")
_EVALUATION_SPLITS = ("val", "valid", "validation", "minival", "dev", "eval", "holdout", "test", "testing", "testdev")
SPLITS = TRAINING_SPLITS + _EVALUATION_SPLITS
"""The names of splits in lower case and in their usual order, as names of directories or words in names of files."""


def find_container(paths: Sequence[Path]) -> Found | None:
    """Return the container for files or a directory, and the paths to pass to its `open`; None if no container fits.

    Raises
    ------
    SourceError
        If one of several paths is not a file; if the paths belong to different containers; or if the files of a
        directory belong to several containers or splits.
    """
    of_each = {path: _kind_of(path) for path in paths}
    first = of_each[paths[0]][0]
    for path, (kind, _) in of_each.items() if len(paths) > 1 else ():
        if kind is None:
            raise SourceError(
                f"{printable(path)}: not a file of another tool; only files of other tools can be passed several at "
                f"a time. Pass the directory that contains all files: {printable(_directory_of(paths))}"
            )
        if first is not None and kind is not first:
            raise SourceError(
                f"{printable(path)}: is {kind.kind}, and {printable(paths[0])} is {first.kind}. Pass files of one kind."
            )
    return None if first is None else (first, [file for path in paths for file in of_each[path][1]])


def _directory_of(paths: Sequence[Path]) -> Path:
    """Return the common directory of some files."""
    return Path(os.path.commonpath([path.parent for path in paths]))


def open_container(paths: Sequence[Path], keys: Mapping[str, str] | None = None) -> Container | None:
    """Open files or a directory as a container; None if no container fits.

    If a pattern matches files of several splits, the container gets a note that says so. The function raises the same
    errors as `find_container` and `Container.open`.
    """
    found = find_container(paths)
    if found is None:
        return None
    container = found[0].open(found[1], dict(keys or {}))
    if container.units_are_files:
        container.notes += notes_on_splits([container.root / name for name in container.files[: container.units]])
    return container


def named_paths(src: str | os.PathLike[str]) -> list[Path]:
    """Return the paths that a string names: a file or directory, or all matches of a pattern.

    A pattern contains ``*``, ``?`` or ``[...]``, or braces such as ``{000..127}`` and ``{a,b}``. Every path from an
    expansion of braces must exist. The returned paths are absolute and sorted; numbers in them are compared by value.
    The result is empty if nothing matches.
    """
    text = os.path.abspath(os.path.expanduser(os.fspath(src)))
    if os.path.lexists(text):
        return [Path(text)]
    found: list[Path] = []
    for name in _without_braces(text):
        matches = sorted(map(Path, glob.glob(name)), key=natural) if glob.has_magic(name) else [Path(name)]
        if not matches or not os.path.lexists(matches[0]):
            if name != text:
                raise SourceError(f"{printable(name)}: no such file; {printable(text)} names it")
            return []
        found += matches
    return found


def _without_braces(text: str) -> list[str]:
    """Expand the braces in a string, as a shell does, and return the resulting strings."""
    match = _BRACES.search(text)
    if match is None:
        return [text]
    numbers = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", match[1])
    if numbers:
        first, last = int(numbers[1]), int(numbers[2])
        if last - first > 10**6:
            raise SourceError(f"{printable(text)}: matches more than a million files")
        choices = [f"{number:0{len(numbers[1])}d}" for number in range(first, last + 1)]
    else:
        choices = match[1].split(",")
    return [
        rest for choice in choices for rest in _without_braces(text[: match.start()] + choice + text[match.end() :])
    ]


def _kind_of(path: Path) -> tuple[type[Container] | None, list[Path]]:
    """Return the container of a file or a directory, and its files."""
    if os.path.isdir(path):
        of, files = one_of(path, [*containers_of_directory(path, names_to_recognise(path))]) or (None, list[Path]())
        if len({file.parent for file in files}) == 1:  # otherwise directories are classes
            one_set(files)
        return of, files
    return container_of_file(path) if os.path.isfile(path) else None, [path]


def container_of_file(path: Path) -> type[Container] | None:
    """Return the container of a file; None if no container recognises it.

    Raises the same errors as `ContainerDescriptor.container` and `Container.recognise_file`.
    """
    head = head_of(path)
    for row in _fitting(path.name, lambda row: row.fits_file(path, head)):
        if _answer(row, lambda kind: kind.recognise_file(path, head)):
            return row.container()
    return None


def containers_of_directory(path: Path, names: Collection[str], *, strict: bool = True) -> Iterator[Found]:
    """Yield each container that recognises a directory with these entries, and the files that it would open.

    Raises the same errors as `ContainerDescriptor.container` and `Container.recognise_directory`. If `strict` is false,
    a container that raises an error for the directory is left out instead.
    """
    lines = "\n".join(names)
    for row in _fitting(lines, lambda row: row.fits_name(lines) or row.fits_below(path, names)):
        try:
            files = _answer(row, lambda kind: kind.recognise_directory(path, names))
        except (SourceError, MissingDependencyError):
            if strict:
                raise
            continue
        if files:
            yield row.container(), files


def _fitting(names: str, fits: Callable[[ContainerDescriptor], bool]) -> Iterator[ContainerDescriptor]:
    """Yield the containers that `fits` accepts, in the order in which they are tried.

    `names` has one file name in each line. The module's docstring describes the order.
    """
    own = list(filter(fits, CONTAINERS.own.values()))
    first = []
    if not any(row.fits_name(names) for row in own):
        first = [row for row in CONTAINERS.plugins.values() if row.fits_name(names) and not row.last]
    yield from first
    yield from (row for row in own if not row.last)
    later = [row for row in CONTAINERS.plugins.values() if row not in first and fits(row)]
    yield from (row for row in later if not row.last)
    yield from (row for row in (*own, *later) if row.last)


def _answer(row: ContainerDescriptor, ask: Callable[[type[Container]], _T]) -> _T | None:
    """Call a container's method and return its result; if code of another package fails, warn and return None."""
    kind = row.container()
    if not row.plugin:
        return ask(kind)
    try:
        return ask(kind)
    except PackerError:
        raise
    except Exception as error:
        warn(f"the plug-in {row.name} ({row.plugin}) failed while recognising files: {type(error).__name__}: {error}")
        return None


def names_to_recognise(path: Path) -> list[str]:
    """Return the names in a directory, sorted, by which the containers recognise it.

    If the directory or one of its subdirectories contains images, only the names of subdirectories are returned.
    """
    with os.scandir(path) as entries:
        found = {entry.name: os.path.isdir(entry.path) for entry in entries}  # no error for links in a circle
    names = sorted(found)
    directories = [name for name in names if found[name]]
    if len(directories) == len(names):
        return names
    images = any(name.lower().endswith(IMAGE_SUFFIXES) for name in names if not found[name])
    return (
        directories
        if images or any(map(_has_images, (path / name for name in directories if name[0] != ".")))
        else names
    )


def one_of(path: Path, found: Sequence[Found]) -> Found | None:
    """Return the only container that recognises a directory, and its files.

    Raises
    ------
    SourceError
        If the directory has files of several containers, because packer would read the files of only one.
    """
    for kind, files in found[1:]:
        if not set(files) & set(found[0][1]):
            kinds = " and ".join(
                f"{of.kind} ({printable(named[0].name)}, …)" for of, named in (found[0], (kind, files))
            )
            raise SourceError(
                f"{printable(path)}: contains files of several kinds: {kinds}. Name the files to read, such as "
                f"'{pattern_of(files)}'"
            )
    return found[0] if found else None


def one_set(paths: Sequence[Path]) -> None:
    """Refuse the files of a directory if their names indicate several splits.

    This applies only to directories: a user who names a directory may not know its files, whereas a user who passes a
    pattern does.

    Raises
    ------
    SourceError
        If there are several splits; the message gives a pattern for each of them.
    """
    patterns = splits_of(paths)
    if patterns:
        shown = ", ".join(patterns[:4]) + (", …" if len(patterns) > 4 else "")
        directory = _directory_of(paths)
        example = printable(directory / patterns[0])
        raise SourceError(
            f"{printable(directory)}: has files of several splits: {shown}. Name one, such as '{example}'"
        )


def notes_on_splits(paths: Sequence[Path]) -> list[str]:
    """Return a note if the chosen files belong to several splits; otherwise an empty list."""
    patterns = splits_of(paths)
    return [f"files of several splits: {', '.join(patterns)}"] if patterns else []


def splits_of(paths: Sequence[Path]) -> list[str]:
    """Return a pattern for the files of each split, relative to their common directory; empty for a single split.

    Words such as ``train`` and ``val`` in the files' names identify the splits.
    """
    if not paths:
        return []
    directory = _directory_of(paths)
    splits = frozenset(SPLITS)
    names: dict[frozenset[str], list[str]] = {}
    for path in paths:
        name = path.relative_to(directory).as_posix()
        names.setdefault(splits.intersection(re.findall("[a-z]+", name.lower())), []).append(name)
    return [printable(common_pattern(of_split)) for of_split in names.values()] if len(names) > 1 else []


def common_pattern(names: Sequence[str]) -> str:
    """Return a pattern that matches all of these names: numbers that differ become ``*``."""
    parts = [re.split("([0-9]+)", name) for name in names]
    if len({tuple(of_name[::2]) for of_name in parts}) > 1:
        first, last = min(names), max(names)
        common = next(count for count in range(len(last)) if first[count : count + 1] != last[count])
        return f"{first[:common]}*"
    return "".join(at[0] if len(set(at)) == 1 else "*" for at in zip(*parts, strict=True))


def files_to_name(directory: Path) -> str:
    """Return a hint for a message: the files of other tools in a directory, as patterns; empty if there are none."""
    patterns = containers_near(directory)
    shown = ", ".join(f"'{pattern}'" for pattern in patterns[:4]) + (", …" if len(patterns) > 4 else "")
    return f". To read files of other tools, name them: {shown}" if patterns else ""


def containers_near(path: Path) -> list[str]:
    """Return patterns that match the container files in a directory and its subdirectories, for a message."""
    found: dict[str, None] = {}
    for directory in (path, *(path / name for name in _directories(path)[:_MOST_SUBDIRECTORIES])):
        names = [name for name in _files(directory) if not name.lower().endswith(IMAGE_SUFFIXES)]
        for _, files in containers_of_directory(directory, names, strict=False) if names else ():
            if directory in files[0].parents:
                of_splits = [printable(directory / pattern) for pattern in splits_of(files)]
                found.update(dict.fromkeys(of_splits or [pattern_of(files)]))
    return [*found]


def pattern_of(files: Sequence[Path]) -> str:
    """Return a pattern, in the syntax of `named_paths`, that matches these files of one directory."""
    return printable(files[0].with_name(common_pattern([file.name for file in files])))


def _has_images(directory: Path) -> bool:
    return any(name.lower().endswith(IMAGE_SUFFIXES) for name in _files(directory))


def _files(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not os.path.isdir(entry.path))
    except OSError:  # listing the images raises this error
        return []


def _directories(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if os.path.isdir(entry.path))


def above_classes(directories: Collection[list[str]]) -> str:
    """Return the directory that contains the class directories: the longest common parent of all paths.

    Every path has at least one more part after this parent.

    Parameters
    ----------
    directories : collection of list of str
        The parts of each directory's path.

    Returns
    -------
    str
        The directory, with a slash at its end; empty if the paths have no common parent.
    """
    first, last = min(directories, default=[]), max(directories, default=[])
    common = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return "".join(f"{part}/" for part in first[: min(common, max(0, min(map(len, directories), default=0) - 1))])


def splits_among(directories: Collection[str]) -> list[str]:
    """Return the directories that are named like splits and contain directories; empty unless there are several."""
    tops = {directory.partition("/")[0] for directory in directories}
    splits = sorted(name for name in tops if name.lower() in SPLITS)
    return splits if len(splits) > 1 and any("/" in directory for directory in directories) else []


def numbered_classes(classes: Sequence[str]) -> list[str]:
    """Return a note if class names are numbers that differ from the ids: names are sorted as text, 10 before 2."""
    if not all(name.isascii() and name.isdecimal() for name in classes):
        return []
    other = next((id for id, name in enumerate(classes) if name.lstrip("0") != str(id).lstrip("0")), None)
    if other is None:
        return []
    why = "class names are numbers, and ids follow their order as text, as in ImageFolder"
    zeros = "With leading zeros in the names, both orders would be the same"
    return [f"{why}: class {printable(classes[other])} has the id {other}. {zeros}"]


_IMAGES = frozenset({"image", "images", "img", "imgs", "rgb", "photo", "photos", "input", "inputs", "lr", "lq"})
_MASKS = frozenset({"mask", "masks", "label", "labels", "seg", "segmentation", "segmentations", "gt", "truth"})
_MASKS |= {"groundtruth", "annotation", "annotations", "semantic", "instance", "instances", "trimap", "trimaps"}
_PICTURES = frozenset({"target", "targets", "hr", "hq"})
"""Words in directory names: of images (`_IMAGES`), of their masks (`_MASKS`), of their target images (`_PICTURES`)."""

_DOMAIN = re.compile(f"((?i:{'|'.join(SPLITS)})[-_ ]?)([AB])")
"""Names such as trainA and trainB: images of two domains, for networks that translate one domain into the other."""

_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MASK_OF = re.compile(r"(?:^|[-_. ])(?:mask|seg|segmentation|label|gt|groundtruth)s?$", re.IGNORECASE)
_COMPARED = 100
"""How many images of a directory are compared, by name, with its masks."""


class ClassImages(Sequence[str]):
    """The paths of a class's images; each becomes a string only when it is accessed.

    Parameters
    ----------
    names : Names
        The paths of all images.
    rows : sequence of int
        The indices of the class's images in `names`.
    above : str
        The prefix to remove from each path.
    """

    def __init__(self, names: Names, rows: Sequence[int], above: str) -> None:
        self._names, self._rows, self._above = names, rows, above

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        return self._names[self._rows[index]].removeprefix(self._above)


def by_class(names: Names, above: str) -> dict[str, ClassImages]:
    """Group the images below a directory by class: the next directory in each path.

    Parameters
    ----------
    names : Names
        The paths of images. Paths outside of `above`, and paths directly in it, are left out.
    above : str
        The directory of the classes, with a slash at its end; or empty.
    """
    rows: dict[str, array[int]] = {}
    for row, name in enumerate(names):
        folder, slash, _ = name.removeprefix(above).partition("/")
        if slash and name.startswith(above):
            rows.setdefault(folder, array("q")).append(row)
    return {folder: ClassImages(names, of_class, above) for folder, of_class in rows.items()}


def account_for_layout(account: Account, listed: Mapping[str, Sequence[str]], above: str, way: str) -> None:
    """Record in `account` which classes look like splits, or like directories of images and masks.

    They are classes nevertheless, as for ImageFolder.

    Parameters
    ----------
    account : Account
    listed : mapping of str to sequence of str
        The images of each class, as paths that begin with the class.
    above : str
        The prefix that messages show before the name of each class: empty, or a path with a slash at its end.
    way : str
        How messages tell the user to convert one directory of the source, such as ``unpack it, and convert``.
    """
    pairs = [*_pairs(listed)]
    splits = [name for name in listed if name.lower() in SPLITS] or ([] if pairs else _domains(listed))
    if len(splits) > 1 or len(splits) == len(listed) > 0:
        each = f"{way} each directory, such as {above}{splits[0]}, with {option('unlabeled', True)}"
        why = (
            "they are named like splits, but are read as classes, as ImageFolder does; if the images have no "
            f"classes, {each}"
        )
        account.taken("class", why, splits)
    for names, images, template in pairs:
        field = option("fields", f"'{template}'" if template else "NAME=TEMPLATE")
        alone = f"{above}{images} with" if images else "the source with"
        alone += "" if "{stem}" in template and not images else f" {option('no_classes', True)}"
        what = "other picture" if template.startswith("paired:") else "mask"
        why = f"they are named like images and their {what}s, but are read as classes, as ImageFolder does"
        account.taken("class", f"{why}; to store each {what} with its image, {way} {alone} {field}", names)
    if (inner := _inner_directories(listed)) is not None:
        _account_for_inner(account, listed, *inner, way)


def _account_for_inner(
    account: Account, listed: Mapping[str, Sequence[str]], images: str, masks: str, way: str
) -> None:
    """Record in `account` if every class has a directory of images and a directory of masks."""
    template = _inner_template(listed, images, masks)
    join = "" if template else "join the masks of each image to one file, "
    field = option("fields", f"'mask={template}'" if template else "NAME=TEMPLATE")
    ids = all(sum(name.startswith(f"{folder}/{images}/") for name in names) < 2 for folder, names in listed.items())
    alone = f"the source with {option('no_classes', True)}" if ids else "the source with"
    account.taken(
        "class",
        f"each has a directory of images and one of masks, {printable(images)} and {printable(masks)}; the "
        "files in both are read as images of the class, as ImageFolder does; to store each mask with its "
        f"image, {join}{way} {alone} {field}",
        listed,
    )


def _inner_directories(listed: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """Return the names of the image and mask directories that all classes have.

    The result is None if a class has other directories.
    """
    found: set[tuple[str, str]] = set()
    for names in filter(len, listed.values()):
        ends = [*names[:_COMPARED], *names[-_COMPARED:]]
        inner = {name.split("/")[1]: _words(name.split("/")[1]) for name in ends if name.count("/") > 1}
        masks = [name for name in inner if inner[name] & _MASKS]
        images = [name for name in inner if inner[name] & _IMAGES and name not in masks]
        if len(masks) != 1 or len(images) != 1:
            return None
        found.add((images[0], masks[0]))
    return found.pop() if len(found) == 1 else None


def _inner_template(listed: Mapping[str, Sequence[str]], images: str, masks: str) -> str:
    """Return the template that turns the path of a class's image into the path of its mask; empty if none fits."""
    of_images, of_masks = list[str](), list[str]()
    for folder, names in listed.items():
        of_images += [f"{folder}/{name}" for name in _below(f"{folder}/{images}", names)]
        of_masks += [f"{folder}/{name}" for name in _below(f"{folder}/{masks}", names)]
        if len(of_images) > _COMPARED:
            break
    if len(of_images) < 2 or any(name.count("/") > 1 for name in of_images):  # one name fits any template
        return ""
    template = _template(of_images, of_masks)
    return template and f"{{dir}}/../{_literal(masks)}/{template.removeprefix('{dir}/')}"


def _domains(listed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all directories if they hold images of two domains, such as trainA and trainB; otherwise an empty list.

    There may be several splits, such as trainA, trainB, testA and testB.
    """
    domains = [_DOMAIN.fullmatch(name) for name in listed]
    both = {domain[2] for domain in domains if domain is not None}
    return list(listed) if None not in domains and len(both) == 2 else []


def _pairs(listed: Mapping[str, Sequence[str]]) -> Iterator[tuple[list[str], str, str]]:
    """Yield directories of images and masks, the path of the images, and the template for the paths of their masks.

    The path is empty if masks are among the images of their class. The template is empty if the names do not show which
    image a mask belongs to.
    """
    for name in _domains(listed):
        other = f"{name[:-1]}B"
        if other != name and len(listed.get(other, ())) > 2:
            template = _template(_below(name, listed[name]), _below(other, listed[other]))
            if template:
                yield [name, other], name, f"paired:image=../{_literal(other)}/{template}"
    words = {name: _words(name) for name, names in listed.items() if names}
    masks = [name for name in words if words[name] & (_MASKS | _PICTURES)]
    images = [name for name in words if words[name] & _IMAGES and name not in masks]
    for name in masks if images else ():
        field = "mask" if words[name] & _MASKS else "paired:image"
        yield [images[0], name], *_of_directories(images[0], name, listed, field)
    among = {} if images and masks else {name: _among(names) for name, names in listed.items()}
    for template in dict.fromkeys(filter(None, among.values())):
        yield [name for name in among if among[name] == template], "", template


def _words(name: str) -> set[str]:
    """Split a name into words: ``leftImg8bit`` into left, img and bit."""
    words = {word.lower() for word in _WORD.findall(name)}
    return words | {"images" for word in words if word == "jpegimages"} | {name.lower()}


def _of_directories(images: str, masks: str, listed: Mapping[str, Sequence[str]], field: str) -> tuple[str, str]:
    """Return the path of the images (or of their first split) and the template for the paths of their masks."""
    of_images, of_masks = listed[images], listed[masks]
    split = of_images[0].split("/")[1] if of_images and of_images[0].count("/") > 1 else ""
    if split.lower() in SPLITS:
        images, masks = f"{images}/{split}", f"{masks}/{split}"
    template = _template(_below(images, of_images), _below(masks, of_masks))
    return images, template and f"{field}={'../' * (images.count('/') + 1)}{_literal(masks)}/{template}"


def _below(directory: str, names: Sequence[str]) -> list[str]:
    return [name[len(directory) + 1 :] for name in names if name.startswith(f"{directory}/")]


def _template(images: Sequence[str], masks: Sequence[str]) -> str:
    """Return the template that finds the masks of most images; empty if none does."""
    if not images or not masks:
        return ""
    (_, stem), (_, of) = _folder_and_stem(images[0]), _folder_and_stem(masks[0])
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(stem, of, strict=False)))
    end, other_end = stem[common:], of[common:] + os.path.splitext(masks[0])[1]
    there, compared = set(masks), [_folder_and_stem(name) for name in images[:_COMPARED]]
    if 2 * sum(f"{folder}{stem.removesuffix(end)}{other_end}" in there for folder, stem in compared) < len(compared):
        return ""
    directory = "{dir}/" if any(folder for folder, _ in compared) else ""
    return f"{directory}{{stem{_literal(end and f'%{end}')}}}{_literal(other_end)}"


def _among(names: Sequence[str]) -> str:
    """Return the template for masks in the same directory as their images; empty if there are no such masks."""
    compared = [(name, *_folder_and_stem(name)) for name in names[:_COMPARED]]
    masks = [(name, folder, stem, end) for name, folder, stem in compared if (end := _MASK_OF.search(stem))]
    there = {"".join(_folder_and_stem(name)) for name in names} if masks else set[str]()
    for name, folder, stem, end in masks:
        alone = end.start() == 0  # a directory for each image, such as 0001/image.png and 0001/mask.png
        if any(folder + one in there for one in (_IMAGES if alone else [stem[: end.start()]])):
            suffix = os.path.splitext(name)[1]
            return f"mask={{dir}}/{'' if alone else '{stem}'}{_literal(end[0] + suffix)}"
    return ""


def _folder_and_stem(name: str) -> tuple[str, str]:
    """Return a file's directory (empty, or with a slash at its end) and the file's name without the suffix."""
    folder, slash, file = name.rpartition("/")
    return folder + slash, os.path.splitext(file)[0]


def _literal(text: str) -> str:
    """Escape text for a template by doubling its braces."""
    return text.replace("{", "{{").replace("}", "}}")
