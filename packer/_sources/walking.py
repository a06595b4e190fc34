"""The images below a directory, in ImageFolder's order, and what else is there.

The rules are those of `make_dataset` in `torchvision.datasets.folder`: directories are visited in the order of their
paths, symbolic links to directories are followed, and a file counts if its suffix is one of an image, in any case.
Hidden files and directories count too, which is said. In one thing packer differs: what macOS and Windows leave beside
other files is no image, though its name may end as one's does.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packer._account import Account
from packer._images.signatures import is_image
from packer._sample import IMAGE_SUFFIXES
from packer._sources.others import OtherFiles
from packer._storage.opening import PointerError, StrangeFileError, open_regular
from packer._storage.systemfiles import LEFT_BY_SYSTEM, MACOSX, is_system_file
from packer.errors import SourceError, printable

__all__ = [
    "HIDDEN_IMAGES",
    "ImageRule",
    "Walk",
    "is_directory",
    "is_hidden",
    "subdirectories",
]

HIDDEN_IMAGES = "they are hidden, and ImageFolder takes them; --skip-hidden leaves them out"
_HIDDEN_TAKEN = "it is hidden, and its images are taken as ImageFolder takes them; --skip-hidden leaves it out"
_METADATA = re.compile(r"metadata\.(csv|jsonl|parquet)")
_OF_LABELS = re.compile(
    r"label|annotation|class|target|instances|metadata|dataset|^(data|train|val|test|gt|list|meta)$"
)
_SKIPPED = "hidden, and --skip-hidden"
_HEAD = 16  # bytes by which a file is known


@dataclass(frozen=True)
class ImageRule:
    """Which files count as images.

    Attributes
    ----------
    extensions : tuple of str
        Files whose names end so, in any case; in lower case here. ImageFolder has the same argument.
    any_image : bool
        Whether all other files are asked for their content, and count where they begin as an image does.
    skip_hidden : bool
        Whether hidden files and directories, whose names begin with a dot, do not count.
    """

    extensions: tuple[str, ...] = IMAGE_SUFFIXES
    any_image: bool = False
    skip_hidden: bool = False

    @classmethod
    def of(
        cls, extensions: str | Iterable[str] | None, any_image: bool = False, skip_hidden: bool = False
    ) -> ImageRule:
        """Return the rule of suffixes that a person said, one after the other or with commas between them.

        Raises
        ------
        TypeError, ValueError
            If there is none, or one is not text, or empty.
        """
        if extensions is None:
            return cls(any_image=any_image, skip_hidden=skip_hidden)
        said = extensions.split(",") if isinstance(extensions, str) else list(extensions)
        if not all(isinstance(suffix, str) for suffix in said):
            raise TypeError(f"extensions are texts such as '.gif', not {extensions!r}")
        suffixes = [suffix.strip().lower() for suffix in said]
        if not suffixes or any(suffix in ("", ".") or "/" in suffix for suffix in suffixes):
            raise ValueError(f"extensions are suffixes such as '.jpg,.gif', not {extensions!r}")
        dotted = tuple(suffix if suffix.startswith(".") else f".{suffix}" for suffix in suffixes)
        return cls(dotted, any_image, skip_hidden)

    def takes(self, entry: os.DirEntry[str]) -> bool:
        """Tell whether a file counts. One that cannot be opened does: whoever reads it says why."""
        if entry.name.lower().endswith(self.extensions):
            return True
        if not self.any_image:
            return False
        try:
            with open(open_regular(entry.path), "rb", buffering=0) as file:
                return is_image(file)
        except PointerError:  # of Git LFS: whoever reads it says so
            return True
        except StrangeFileError:
            return False
        except OSError:
            return True

    def __str__(self) -> str:
        return ", ".join(map(printable, self.extensions))


class Walk:
    """Goes through the directories below `root`.

    Attributes
    ----------
    others : OtherFiles
        The files that are no images.
    account : Account
        The hidden files and directories, and what the system left.
    beside : dict of str to str
        Files at the top, or in a directory there, that may have the labels of images, and the option that takes each.
    """

    def __init__(self, root: Path, rule: ImageRule) -> None:
        self._root = root
        self._rule = rule
        self._notes: list[str] = []
        self._left: set[str] = set()
        self._doubles = 0  # files that macOS wrote beside others
        self.others = OtherFiles()
        self.account = Account()
        self.beside: dict[str, str] = {}

    def all_images(self) -> list[str]:
        """Return all images below the root, those in the root itself first; errors as `subdirectories`."""
        folders = list(filter(self.enters, subdirectories(self._root)))
        hidden = {folder: self.images_below(folder) for folder in folders if is_hidden(folder)}
        self.account.taken("directory", _HIDDEN_TAKEN, [folder for folder, images in hidden.items() if images])
        below = (hidden[folder] if folder in hidden else self.images_below(folder) for folder in folders)
        return [*self.images_in(), *itertools.chain.from_iterable(below)]

    def images_in(self) -> list[str]:
        """Return the sorted names of the images that lie in the root itself."""
        with os.scandir(self._root) as entries:
            found = [entry for entry in entries if not is_directory(entry)]
            return sorted(entry.name for entry in found if self._takes(entry, entry.name, hidden=False))

    def images_below(self, folder: str) -> list[str]:
        """Return the images below a directory of the root, as paths relative to the root, in ImageFolder's order.

        Raises
        ------
        SourceError
            If a directory cannot be listed. ImageFolder passes over such a directory in silence.
        """
        listed: list[tuple[str, list[str]]] = []
        before = len(self.others)
        doubles = self._doubles
        hidden: set[str] = set()  # directories with images
        pending = [(os.path.join(self._root, folder), folder, frozenset[tuple[int, int]](), folder * is_hidden(folder))]
        while pending:
            path, relative, above, below = pending.pop()
            try:
                status = os.stat(path)
                identity = (status.st_dev, status.st_ino)
                if identity in above and status.st_ino:
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
        """Tell whether the images below a directory of this name count, and take it down where they do not."""
        enters = not (self._rule.skip_hidden and is_hidden(name))
        if not enters:
            self.account.left_out("directory", _SKIPPED, [path or name], chosen=True)
        return enters

    def is_left_by_system(self, folder: str) -> bool:
        """Tell whether a directory that was gone through has nothing but what macOS leaves beside other files."""
        return folder in self._left

    def said(self) -> list[str]:
        """Return what a person should know about the directories and files that were passed over."""
        return [*self._notes, *([self.others.note()] if self.others.counts else [])]

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
                self.beside[name] = option
        elif self._rule.skip_hidden:
            self.account.left_out("image", _SKIPPED, [name], chosen=True)
            return False
        elif not hidden:
            self.account.taken("image", HIDDEN_IMAGES, [name])
        return takes


def _option_of(name: str) -> str | None:
    """Return the option that takes a file which may have the labels of images; None where it may not."""
    folder, _, file = name.rpartition("/")
    if not folder and _METADATA.fullmatch(file):
        return None  # which is taken already, or is to be left alone
    if folder and (_METADATA.fullmatch(file) or file == "dataset.json"):
        return f"convert that directory, {folder}, alone"
    options = {".csv": "--labels", ".tsv": "--labels", ".jsonl": "--labels", ".parquet": "--labels"}
    options |= {".json": "--coco", ".yaml": "--yolo", ".yml": "--yolo", ".txt": "--no-header --labels"}
    stem, suffix = os.path.splitext(file.lower())
    return options.get(suffix) if _OF_LABELS.search(stem) else None


def subdirectories(root: Path) -> list[str]:
    """Return the sorted names of the subdirectories of `root`; SourceError where it is not a directory."""
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if is_directory(entry))
    except FileNotFoundError:
        raise SourceError(f"{printable(root)}: no such file or directory") from None
    except NotADirectoryError as error:
        raise SourceError(f"{printable(root)}: a file, not a directory with one subdirectory a class") from error
    except OSError as error:
        raise SourceError(f"{printable(root)}: cannot be listed: {error.strerror}") from error


def is_hidden(name: str) -> bool:
    """Tell whether a file or a directory of this name is hidden, as on all systems but Windows."""
    return name.startswith(".")


def _begins(path: str) -> bytes:
    """Return the first bytes of a file; none of one that cannot be read."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry is a directory, or leads to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which is listed as a file, and reported when it is read
        return False
