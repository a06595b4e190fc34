"""Directories of images: with one subdirectory for each class, as in torchvision's ImageFolder, or without classes.

Classes are the sorted names of the root's subdirectories, as with `find_classes` in `torchvision.datasets.folder`.
Within a class, the rules of `make_dataset` in the same module apply. Directories are visited in the order of their
paths, and symbolic links to directories are followed. A file is an image if it has the suffix of an image, in upper or
lower case. Hidden files and directories count too, and the account of the source lists them. There is one difference
from ImageFolder: helper files that macOS and Windows write next to other files are not images, even if they have the
suffix of an image.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from packer._account import Account, BadSamples, counted
from packer._codecs import IMAGE_SUFFIXES, UNLABELED
from packer._containers import account_for_layout, files_to_name, numbered_classes
from packer._containers.dataset_json import DATASET_JSON
from packer._containers.discovery import SPLITS, TRAINING_SPLITS
from packer._images.signatures import is_image
from packer._sources.base import Column, ComputedFields, OtherFiles, Source, some
from packer._sources.labels import class_ids, in_known_classes
from packer._storage.safe_open import PointerError, StrangeFileError, open_regular
from packer._storage.stray_files import LEFT_BY_SYSTEM, MACOSX, is_system_file
from packer._table import Names
from packer.errors import OptionError, OptionTypeError, SourceError, option, printable

HIDDEN_IMAGES = "they are hidden, and ImageFolder takes them; --skip-hidden leaves them out"
_HIDDEN_TAKEN = "it is hidden, and its images are taken as ImageFolder takes them; --skip-hidden leaves it out"
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""The names of Hugging Face's metadata tables, which describe the images below their directory."""

_OF_LABELS = re.compile(
    r"label|annotation|class|target|instances|metadata|dataset|^(data|train|val|test|gt|list|meta)$"
)
_SKIPPED = "hidden, and --skip-hidden"
_HEAD = 16  # bytes for recognising a file


@dataclass(frozen=True)
class ImageRule:
    """The rule by which files count as images.

    Attributes
    ----------
    extensions : tuple of str
        The suffixes of images, in lower case; in the names of files, they may be in upper case too. ImageFolder has the
        same argument.
    any_image : bool
        Whether files with other suffixes also count, if they begin with the bytes of an image.
    skip_hidden : bool
        Whether to ignore hidden files and directories: names that begin with a dot.
    """

    extensions: tuple[str, ...] = IMAGE_SUFFIXES
    any_image: bool = False
    skip_hidden: bool = False

    @classmethod
    def of(
        cls, extensions: str | Iterable[str] | None, any_image: bool = False, skip_hidden: bool = False
    ) -> ImageRule:
        """Return the rule for the suffixes that the user has passed as a sequence, or as a text separated by commas.

        Raises
        ------
        OptionTypeError, OptionError
            If there are no suffixes, or a suffix is not a text or is empty.
        """
        if extensions is None:
            return cls(any_image=any_image, skip_hidden=skip_hidden)
        listed = extensions.split(",") if isinstance(extensions, str) else list(extensions)
        if not all(isinstance(suffix, str) for suffix in listed):
            raise OptionTypeError(f"extensions are texts such as '.gif', not {extensions!r}")
        suffixes = [suffix.strip().lower() for suffix in listed]
        if not suffixes or any(suffix in ("", ".") or "/" in suffix for suffix in suffixes):
            raise OptionError(f"extensions are suffixes such as '.jpg,.gif', not {extensions!r}")
        dotted = tuple(suffix if suffix.startswith(".") else f".{suffix}" for suffix in suffixes)
        return cls(dotted, any_image, skip_hidden)

    def takes(self, entry: os.DirEntry[str]) -> bool:
        """Tell whether a file counts as an image.

        A file that cannot be opened counts, so that reading it reports the error.
        """
        if entry.name.lower().endswith(self.extensions):
            return True
        if not self.any_image:
            return False
        try:
            with open(open_regular(entry.path), "rb", buffering=0) as file:
                return is_image(file)
        except PointerError:  # the file is a pointer of Git LFS; reading it later reports the error
            return True
        except StrangeFileError:
            return False
        except OSError:
            return True

    def __str__(self) -> str:
        return ", ".join(map(printable, self.extensions))


class Walk:
    """A walk through the directories below `root`.

    Attributes
    ----------
    others : OtherFiles
        The files that are not images.
    account : Account
        Records hidden files and directories, and helper files of the operating system.
    label_files : dict of str to str
        The files, in the root or directly in a subdirectory, that may contain labels, each with the option that reads
        it.
    """

    def __init__(self, root: Path, rule: ImageRule) -> None:
        self._root = root
        self._rule = rule
        self._notes: list[str] = []
        self._left: set[str] = set()
        self._doubles = 0  # number of AppleDouble files, which macOS writes next to other files
        self.others = OtherFiles()
        self.account = Account()
        self.label_files: dict[str, str] = {}

    @functools.cached_property
    def _top(self) -> tuple[int, int]:
        return _identity(self._root)

    def all_images(self) -> list[str]:
        """Return all images below the root, those directly in it first. Raises the same errors as `subdirectories`."""
        folders = list(filter(self.enters, subdirectories(self._root)))
        hidden = {folder: self.images_below(folder) for folder in folders if is_hidden(folder)}
        self.account.taken("directory", _HIDDEN_TAKEN, [folder for folder, images in hidden.items() if images])
        below = (hidden[folder] if folder in hidden else self.images_below(folder) for folder in folders)
        return [*self.images_in(), *itertools.chain.from_iterable(below)]

    def images_in(self) -> list[str]:
        """Return the sorted names of the images directly in the root."""
        with os.scandir(self._root) as entries:
            found = [entry for entry in entries if not is_directory(entry)]
            return sorted(entry.name for entry in found if self._takes(entry, entry.name, hidden=False))

    def images_below(self, folder: str) -> list[str]:
        """Return the images below a subdirectory of the root, as paths relative to the root, in ImageFolder's order.

        Raises
        ------
        SourceError
            If a directory cannot be listed. ImageFolder skips such a directory silently.
        """
        listed: list[tuple[str, list[str]]] = []
        before = len(self.others)
        doubles = self._doubles
        hidden: set[str] = set()  # hidden directories with images
        pending = [(os.path.join(self._root, folder), folder, frozenset({self._top}), folder * is_hidden(folder))]
        while pending:
            path, relative, above, below = pending.pop()
            try:
                identity = _identity(path)
                if identity in above and identity[1]:  # the file number is 0 in file systems without file numbers
                    self._notes.append(
                        f"a symbolic link to a directory above it is not followed: {printable(relative)}"
                    )
                    continue
                files = []
                with os.scandir(path) as entries:
                    for entry in entries:
                        name = f"{relative}/{entry.name}"
                        if not is_directory(entry):
                            if self._takes(entry, name, hidden=bool(below)):
                                files.append(entry.name)
                        elif self.enters(entry.name, name):
                            hides = below or name * is_hidden(entry.name)
                            pending.append((entry.path, name, above | {identity}, hides))
            except OSError as error:
                raise SourceError(f"{printable(path)}: cannot be listed: {error.strerror}") from error
            hidden |= {below} if files else set()
            listed.append((relative, sorted(files)))
        self.account.taken("directory", _HIDDEN_TAKEN, sorted(hidden - {"", folder}))
        listed.sort()  # by path: "a", "a-b", "a/c", as sorted(os.walk()) does
        images = [f"{relative}/{file}" for relative, files in listed for file in files]
        if not images and len(self.others) == before and (folder == MACOSX or self._doubles > doubles):
            self._left.add(folder)
        return images

    def enters(self, name: str, path: str = "") -> bool:
        """Tell whether the images below a directory of this name count; if not, record the directory as left out."""
        enters = not (self._rule.skip_hidden and is_hidden(name))
        if not enters:
            self.account.left_out("directory", _SKIPPED, [path or name], chosen=True)
        return enters

    def is_left_by_system(self, folder: str) -> bool:
        """Tell whether a visited directory has only helper files that macOS writes next to other files."""
        return folder in self._left

    def notes(self) -> list[str]:
        """Return remarks for the user on the directories and files that were skipped."""
        return [*self._notes, *self.others.notes()]

    def _takes(self, entry: os.DirEntry[str], name: str, *, hidden: bool) -> bool:
        takes = self._rule.takes(entry)
        if takes and not is_hidden(entry.name):
            return True
        if is_system_file(entry.name, lambda: _begins(entry.path)):
            self.account.not_looked_at("file", LEFT_BY_SYSTEM, [name])
            self._doubles += entry.name.startswith("._")
            return False
        if not takes:
            self.others.add(name)
            if name.count("/") <= 1 and (option := _option_of(name)):
                self.label_files[name] = option
        elif self._rule.skip_hidden:
            self.account.left_out("image", _SKIPPED, [name], chosen=True)
            return False
        elif not hidden:
            self.account.taken("image", HIDDEN_IMAGES, [name])
        return takes


def _identity(path: str | Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _option_of(name: str) -> str | None:
    """Return the option that reads a possible label file; None for other files."""
    folder, _, file = name.rpartition("/")
    if not folder and file in _METADATA:
        return None  # it has been read already, or the user wants it ignored
    if folder and file in (*_METADATA, DATASET_JSON):
        return f"convert the directory {folder} separately"
    options = dict.fromkeys((".csv", ".tsv", ".jsonl", ".parquet"), option("labels"))
    options |= {".json": option("coco"), ".yaml": option("yolo"), ".yml": option("yolo")}
    options[".txt"] = f"{option('no_header', True)} {option('labels')}"
    stem, suffix = os.path.splitext(file.lower())
    return options.get(suffix) if _OF_LABELS.search(stem) else None


def metadata_files(root: Path) -> list[str]:
    """Return the names of the metadata tables, and of a dataset.json, directly in a directory."""
    return [name for name in (*_METADATA, DATASET_JSON) if os.path.isfile(root / name)]


def subdirectories(root: Path) -> list[str]:
    """Return the sorted names of the subdirectories of `root`; SourceError if it is not a directory."""
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if is_directory(entry))
    except FileNotFoundError:
        raise SourceError(f"{printable(root)}: no such file or directory") from None
    except NotADirectoryError as error:
        raise SourceError(f"{printable(root)}: a file, not a directory with one subdirectory per class") from error
    except OSError as error:
        raise SourceError(f"{printable(root)}: cannot be listed: {error.strerror}") from error


def is_hidden(name: str) -> bool:
    """Tell whether a name begins with a dot, which hides a file or a directory on all systems but Windows."""
    return name.startswith(".")


def _begins(path: str) -> bytes:
    """Return the first bytes of a file; no bytes if it cannot be read."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry is a directory, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # for example a link to itself: it is listed as a file, and reading it reports the error
        return False


FilesOf = Callable[[Iterable[str]], Mapping[str, str]]
"""Takes the names of images; returns the paths below the root that may be files of fields, each with its image."""

HIDDEN_CLASS = "a hidden directory is a class, as for ImageFolder; --skip-hidden leaves it out"
"""The reason in an account for a class whose name begins with a dot."""


def imagefolder_source(
    root: Path,
    classes: Sequence[str] | None = None,
    rule: ImageRule | None = None,
    files_of: FilesOf | None = None,
    *,
    allow_empty: bool = True,
    bad: BadSamples | None = None,
) -> Source:
    """List the images below `root`.

    Parameters
    ----------
    root : Path
    classes : sequence of str, optional
        Class names in the order of their ids; the default is the sorted names of the subdirectories.
    rule : ImageRule, optional
        The rule that decides which files are images; by default ImageFolder's.
    files_of : callable, optional
        Returns the files that contain values of fields. Such files are not images themselves, and a directory without
        other images is not a class.
    allow_empty : bool
        Whether a class without images is allowed; with `classes`, such a class is always allowed. ImageFolder has the
        same argument. Its default is False, and so is the default of conversions.
    bad : BadSamples, optional
        Collects the images of classes that are not in `classes`; by default such a class is an error.

    Raises
    ------
    SourceError
        If `root` is not a directory, or has no images; if a directory in it cannot be listed; if a class is not in
        `classes`, or is in `classes` twice; or if a class has no image and `allow_empty` is False.
    """
    walk = Walk(root, rule or ImageRule())
    folders = list(filter(walk.enters, subdirectories(root)))
    if not folders:
        raise SourceError(
            f"{printable(root)}: no subdirectories in it. Images are expected as {printable(root)}/CLASS/IMAGE; "
            f"for labels in a file, pass {option('labels', 'FILE.csv')}; for images without labels, pass "
            f"{option('unlabeled', True)}"
            f"{files_to_name(root)}."
        )
    outside = walk.images_in()
    listed = {folder: walk.images_below(folder) for folder in folders}
    account = _without_system_directories(listed, walk)
    notes = walk.notes()
    if files_of is not None:
        listed = _without_files(root, listed, files_of, notes)
    bad = bad or BadSamples()
    if classes is not None:
        listed = in_known_classes(printable(root), listed, classes, bad)
    counts = list(map(len, listed.values()))
    if not any(counts):
        others = "".join(f". {note}" for note in notes)
        raise SourceError(
            f"{printable(root)}: no images ({rule or ImageRule()}) in its {counted(len(listed), 'directory')}{others}"
            f"{files_to_name(root)}"
        )
    account.left_out("image", "it is not in a class directory; ImageFolder ignores it too", outside)
    if classes is None:
        notes += _review_classes(root, listed, account, allow_empty=allow_empty)
    ids = class_ids(list(listed) if classes is None else classes)
    labels = np.repeat(np.array([ids[folder] for folder in listed], np.int64), counts)
    return Source(
        "imagefolder",
        root,
        Names.of(itertools.chain.from_iterable(listed.values())),
        labels,
        list(ids),
        notes,
        others=walk.others,
        account=account,
        doubts=tuple(bad.found),
    )


def _review_classes(
    root: Path, listed: Mapping[str, Sequence[str]], account: Account, *, allow_empty: bool
) -> list[str]:
    """Record in the account the directories that the user may not mean as classes; return notes on the classes.

    Raises SourceError if a class has no image and `allow_empty` is False.
    """
    notes = []
    if empty := [folder for folder, names in listed.items() if not names]:
        if not allow_empty:
            raise _of_empty(root, empty)
        notes.append(f"classes without images, which keep their ids: {some(empty)}{_annotations(root, empty)}")
    account_for_layout(account, listed, f"{printable(root)}/", "convert")
    _account_for_training(root, list(listed), account)
    return [*notes, *numbered_classes(list(listed))]


def _account_for_training(root: Path, folders: Sequence[str], account: Account) -> None:
    """Record in the account the classes that the training split has and this split lacks.

    ImageFolder numbers the classes of each split separately, so the same class may have different ids.
    """
    root = root.absolute()
    if root.name.lower() not in SPLITS or root.name.lower() in TRAINING_SPLITS:
        return
    try:
        training = [name for name in subdirectories(root.parent) if name.lower() in TRAINING_SPLITS]
        classes = class_directories(root.parent / training[0]) if training else []
    except (SourceError, OSError):
        return
    lacking = sorted(set(classes).difference(folders))
    if not lacking or not set(classes).intersection(folders):
        return
    ids = class_ids(classes)
    same = all(ids.get(folder, number) == number for number, folder in enumerate(folders))
    others = (
        ""
        if same
        else (
            f", and other classes have other ids there: convert both, this directory with {option('classes_from')} "
            "and the pack of the other"
        )
    )
    account.not_looked_at("class", f"the directory {printable(training[0])} next to this one has it{others}", lacking)


def require_images_in_classes(source: Source) -> None:
    """Raise SourceError if a class has no image, as ImageFolder does."""
    if empty := source.empty_classes():
        raise _of_empty(source.root, empty)


def _of_empty(root: Path, empty: Sequence[str]) -> SourceError:
    hidden = f"; {option('skip_hidden', True)} leaves hidden ones out" if any(map(is_hidden, empty)) else ""
    one = len(empty) == 1
    return SourceError(
        f"{printable(root)}: no images in the class director{'y' if one else 'ies'} {some(empty)}, which ImageFolder "
        f"refuses too{_annotations(root, empty)}. Fill or remove {'it' if one else 'them'}; or pass "
        f"{option('allow_empty', True)}: such a class keeps its id{hidden}"
    )


def _annotations(root: Path, folders: Iterable[str]) -> str:
    """Return a sentence with the options that read annotations in these directories; empty if there are none."""
    for folder in folders:
        files = next((sorted(files) for _, _, files in os.walk(root / folder) if files), [])
        suffixes = {os.path.splitext(file)[1].lower() for file in files}
        if ".xml" in suffixes:
            return _converted(root, f"the Pascal VOC annotations in {folder}", "voc", root, split=True)
        if ".txt" in suffixes and folder.rpartition("/")[2] == "labels":
            yamls = [path for above in (root, root.absolute().parent) for path in sorted(above.glob("*.y*ml"))]
            above, said = (yamls[0].parent, yamls[0]) if yamls else (root, Path("data.yaml"))
            return _converted(above, f"the YOLO labels in {folder}", "yolo", said, split=True)
        if ".json" in suffixes:
            file = next(file for file in files if file.lower().endswith(".json"))
            images = next((root / name for name in subdirectories(root) if name in file), root)
            return _converted(images, f"annotations such as COCO's in {folder}", "coco", root / folder / file)
    return ""


def _converted(root: Path, what: str, name: str, value: Path, *, split: bool = False) -> str:
    how = f"{option(name, shlex.quote(printable(value)))}{' ' + option('split', 'train') if split else ''}"
    return f". To convert the images with {printable(what)}, pass {printable(root)} and {how}"


def _without_system_directories(listed: dict[str, list[str]], walk: Walk) -> Account:
    """Remove directories with only helper files of macOS, and return the account of the listing."""
    account = Account()
    account.taken("class", HIDDEN_CLASS, [folder for folder in listed if is_hidden(folder)])
    account.update(walk.account)
    left = list(filter(walk.is_left_by_system, listed))
    account.not_looked_at("directory", LEFT_BY_SYSTEM, left)
    for name, taken_by in walk.label_files.items():
        account.not_looked_at("file", f"it may have the labels: {taken_by}", [name])
    for folder in left:
        del listed[folder]
    return account


def _without_files(
    root: Path, listed: Mapping[str, list[str]], files_of: FilesOf, notes: list[str]
) -> dict[str, list[str]]:
    """Return the images of each class, without files of fields and without directories that contain only such files."""
    owners = files_of(name for names in listed.values() for name in names)
    images = {folder: [name for name in names if name not in owners] for folder, names in listed.items()}
    if any(listed.values()) and not any(images.values()):
        raise SourceError(f"{printable(root)}: every image is the field file of another image")
    if count := sum(map(len, listed.values())) - sum(map(len, images.values())):
        notes.append(f"{count:,} field files are among the images; they are not packed as images")
    paths_of: dict[str, list[str]] = {}  # for each folder, the files of fields whose images are in other folders
    for path, name in owners.items():
        folder = path.partition("/")[0]
        if folder in images and folder != name.partition("/")[0]:
            paths_of.setdefault(folder, []).append(path)
    folders = [folder for folder, paths in paths_of.items() if any(os.path.isfile(root / path) for path in paths)]
    if alone := [folder for folder in folders if not images[folder]]:
        notes.append(f"directories that contain only field files, which are not classes: {some(alone)}")
    if mixed := [folder for folder in folders if images[folder]]:
        first = printable(images[mixed[0]][0])
        notes.append(
            f"directories with field files that are classes, because they also have other images, such as {first}: "
            f"{some(mixed)}"
        )
    return {folder: names for folder, names in images.items() if folder not in alone}


def class_directories(root: Path) -> list[str]:
    """Return the sorted names of the subdirectories of `root`; SourceError if it is not a directory.

    The directory of helper files that macOS adds to zip archives counts only if it contains images.
    """
    folders = subdirectories(root)
    if MACOSX in folders and not Walk(root, ImageRule()).images_below(MACOSX):
        folders.remove(MACOSX)
    return folders


def split_directories(root: Path) -> list[str]:
    """Return the names of the splits (train, val, …) below `root`: directories with class directories in them."""
    folders = [folder for folder in class_directories(root) if folder.lower() in SPLITS]
    splits = [folder for folder in folders if class_directories(root / folder)]
    return sorted(splits, key=lambda folder: (SPLITS.index(folder.lower()), folder))


def refuse_splits(root: Path, destination: Path | None = None, parts: int | None = None) -> None:
    """Raise SourceError, with the command to use instead, if `root` contains splits and not classes.

    Directories count as splits if two of them, or all of them, have names of splits, because a single class can be
    called ``train``. Without `destination` nothing is converted, and the message names one split to pass instead.
    """
    splits = split_directories(root)
    folders = [folder for folder in class_directories(root) if not is_hidden(folder)]
    all_named_so = all(folder.lower() in SPLITS for folder in folders)
    if len(splits) > 1 or (splits and all_named_so):
        annotated = [f"{splits[0]}/{folder}" for folder in class_directories(root / splits[0])]
        problem = (
            f"{printable(root)} contains splits ({', '.join(splits)}), not classes{_annotations(root, annotated)}."
        )
        if destination is None:
            raise SourceError(f"{problem} Pass one of them: {printable(root / splits[0])}")
        raise SourceError(f"{problem}\n{_commands_for_splits(root, splits, destination, parts)}")


def _commands_for_splits(root: Path, splits: Sequence[str], destination: Path, parts: int | None) -> str:
    """Return the commands that convert all splits with the same class ids."""
    packs = [destination.with_stem(f"{destination.stem}-{split}") for split in splits]
    src, dst, *each = (shlex.quote(printable(path)) for path in (root, destination, *packs))
    first, *others = (
        f"  packer convert {shlex.quote(printable(root / split))} {pack}"
        for split, pack in zip(splits, each, strict=True)
    )
    if parts is None:
        return (
            f"Convert all of them, with the same class ids:\n  packer convert {src} {dst} --split all\nor one:\n{first}"
        )
    lines = [f"{first} --parts {parts}", *(f"{line} --parts {parts} --classes-from {each[0]}" for line in others)]
    return "\n".join(["Convert each of them, with the same class ids:", *lines])


def unlabeled_source(root: Path, rule: ImageRule | None = None) -> Source:
    """List all images below `root`, sorted by path, each with the label -1.

    Parameters
    ----------
    root : Path
    rule : ImageRule, optional
        The rule that decides which files are images; by default ImageFolder's.

    Raises
    ------
    SourceError
        If `root` is not a directory, a directory in it cannot be listed, or it has no images.
    """
    rule = rule or ImageRule()
    walk = Walk(root, rule)
    names = walk.all_images()
    notes = walk.notes()
    if not names:
        raise SourceError(f"{printable(root)}: no images ({rule}) below it{''.join(f'. {note}' for note in notes)}")
    notes.insert(0, "the images are unlabeled: every label is -1, and there are no classes")
    return images_without_labels("files", root, sorted(names), walk, notes)


def images_without_labels(
    kind: str,
    root: Path,
    names: Iterable[str],
    walk: Walk,
    notes: Sequence[str],
    *,
    columns: Sequence[Column] = (),
    computed: ComputedFields | None = None,
    **members: Any,
) -> Source:
    """Return a source of these images, which a walk has found, each with the label -1.

    Its fields are the computed fields, then the fields of `columns`; `members` are further attributes of the source.
    """
    listed = Names.of(names)
    members |= {"columns": tuple(columns), "computed": computed, "others": walk.others, "account": walk.account}
    fields = (*(() if computed is None else computed.fields), *(column.field for column in columns))
    labels = np.full(len(listed), UNLABELED, np.int64)
    return Source(kind, root, listed, labels, [], list(notes), fields=fields, **members)
