"""The images below a directory, in ImageFolder's order, and what else is there.

The rules are those of `make_dataset` in `torchvision.datasets.folder`: directories are visited in the order of their
paths, symbolic links to directories are followed, and a file counts if its suffix is one of an image, in any case.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packer._images.signatures import is_image
from packer._sample import IMAGE_SUFFIXES
from packer._sources.others import OtherFiles
from packer._storage.opening import PointerError, StrangeFileError, open_regular
from packer.errors import SourceError, printable

__all__ = ["ImageRule", "Walk", "is_directory"]


@dataclass(frozen=True)
class ImageRule:
    """Which files count as images.

    Attributes
    ----------
    extensions : tuple of str
        Files whose names end so, in any case; in lower case here. ImageFolder has the same argument.
    any_image : bool
        Whether all other files are asked for their content, and count where they begin as an image does.
    """

    extensions: tuple[str, ...] = IMAGE_SUFFIXES
    any_image: bool = False

    @classmethod
    def of(cls, extensions: str | Iterable[str] | None, any_image: bool = False) -> ImageRule:
        """Return the rule of suffixes that a person said, one after the other or with commas between them.

        Raises
        ------
        TypeError, ValueError
            If there is none, or one is not text, or empty.
        """
        if extensions is None:
            return cls(any_image=any_image)
        said = extensions.split(",") if isinstance(extensions, str) else list(extensions)
        if not all(isinstance(suffix, str) for suffix in said):
            raise TypeError(f"extensions are texts such as '.gif', not {extensions!r}")
        suffixes = [suffix.strip().lower() for suffix in said]
        if not suffixes or any(suffix in ("", ".") or "/" in suffix for suffix in suffixes):
            raise ValueError(f"extensions are suffixes such as '.jpg,.gif', not {extensions!r}")
        return cls(tuple(suffix if suffix.startswith(".") else f".{suffix}" for suffix in suffixes), any_image)

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
    """

    def __init__(self, root: Path, rule: ImageRule) -> None:
        self._root = root
        self._rule = rule
        self._notes: list[str] = []
        self.others = OtherFiles()

    def images_in(self) -> list[str]:
        """Return the sorted names of the images that lie in the root itself."""
        with os.scandir(self._root) as entries:
            return sorted(entry.name for entry in entries if not is_directory(entry) and self._takes(entry, entry.name))

    def images_below(self, folder: str) -> list[str]:
        """Return the images below a directory of the root, as paths relative to the root, in ImageFolder's order.

        Raises
        ------
        SourceError
            If a directory cannot be listed. ImageFolder passes over such a directory in silence.
        """
        listed: list[tuple[str, list[str]]] = []
        pending = [(os.path.join(self._root, folder), folder, frozenset[tuple[int, int]]())]
        while pending:
            path, relative, above = pending.pop()
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
                        if is_directory(entry):
                            pending.append((entry.path, name, above | {identity}))
                        elif self._takes(entry, name):
                            files.append(entry.name)
            except OSError as error:
                raise SourceError(f"{printable(path)}: cannot be listed: {error.strerror}") from error
            listed.append((relative, sorted(files)))
        listed.sort()  # by path: "a", "a-b", "a/c", as sorted(os.walk()) does
        return [f"{relative}/{file}" for relative, files in listed for file in files]

    def said(self) -> list[str]:
        """Return what a person should know about the directories and files that were passed over."""
        return [*self._notes, *([self.others.note()] if self.others.counts else [])]

    def _takes(self, entry: os.DirEntry[str], name: str) -> bool:
        takes = self._rule.takes(entry)
        if not takes:
            self.others.add(name)
        return takes


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry is a directory, or leads to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which is listed as a file, and reported when it is read
        return False
