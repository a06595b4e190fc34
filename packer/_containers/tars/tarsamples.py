"""Samples in a tar, as webdataset has them: members of one key, which follow each other.

A member's key is its path up to the first dot of the file's name, and its extension, in lower case, is what comes after
that dot: ``dir/0001.seg.png`` is ``seg.png`` of the sample ``dir/0001``. A key that comes back later, with an image, is
another sample. See https://github.com/webdataset/webdataset, webdataset/tariterators.py.

Two things are read that webdataset takes for something else. Members of one sample may lie apart, as ``tar cf a.tar
*.jpg *.cls`` writes them. And file names may have dots: where no member of a key has a plain extension, as in
``img.v2.jpg`` and ``img.v2.cls``, what comes after the first dot still belongs to the key.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import NoReturn

from packer._account import Account
from packer._containers.imagenames import is_image_name, suffix_of
from packer._containers.tars.tarheaders import Member, Window
from packer._storage.systemfiles import LEFT_BY_SYSTEM, is_system_file
from packer.errors import SourceError, printable

__all__ = ["IMAGES", "Sample", "SampleReader", "last_part"]

IMAGES = (
    *("jpg", "jpeg", "jpe", "jfif", "webp", "png", "bmp", "tif", "tiff"),
    *("ppm", "pgm", "pbm", "pnm", "gif", "img", "image"),
)
"""The extensions of images; of several in one sample the first of these is the image."""

Sample = dict[str, Member]
"""The members of a sample by their extensions."""

_META = re.compile("__[^/]*__($|/)")  # names that webdataset keeps for itself
_MOST = 1000  # members of a sample
_MOST_OF_KEY = 1 << 17  # members that have one key up to the first dot
_MOST_DOTS = 100  # in the key of a sample
_ODD = re.compile(r"\\|^\.?/|//|/\.\.?/|^\.\./")
_HEAD = 16  # bytes by which an image is known
_REMEMBERED = 100_000  # keys without an image
_HIDDEN = "their names begin with a dot, which makes no sample"
_AGAIN = "Make the tar again with its members in the order of their names: `tar --sort=name`"


def last_part(extension: str) -> str:
    """Return what comes after the last dot of an extension."""
    return extension.rpartition(".")[2]


class SampleReader:
    """Makes samples of the members of a tar.

    Parameters
    ----------
    path : str
        The tar, for messages.
    members : iterable of Member
    window : Window
        What reads the tar.
    first_dot : bool
        Whether a key ends at the first dot in any case, as webdataset has it.

    Attributes
    ----------
    notes : list of str
        What there is to say after the members were read.
    account : Account
        The members that belong to no sample.
    apart : bool
        After `gathered`, whether members of one sample lie apart.
    """

    def __init__(self, path: str, members: Iterable[Member], window: Window, *, first_dot: bool = False) -> None:
        self._path, self._members, self._window, self._first_dot = path, members, window, first_dot
        self.notes: list[str] = []
        self.account = Account()
        self.apart = False

    def first(self, count: int) -> list[Sample]:
        """Return the first samples, of members that follow each other; errors as `following`."""
        return [sample for _, sample in islice(self._runs(), count)]

    def following(self) -> Iterator[Sample]:
        """Yield samples whose members follow each other, in the order of the tar.

        Raises
        ------
        SourceError
            If a sample has two members of one extension, or very many; or, after the last one, if the members of one
            lie apart.
        """
        with_image, without = array("q"), dict[int, Sample]()
        for key, sample in self._runs():
            number = hash((key, next(iter(sample.values())).archive))
            if _has_image(sample):
                with_image.append(number)
            elif len(without) < _REMEMBERED:
                without[number] = sample
            yield sample
        apart = next((without[number] for number in with_image if number in without), None) if without else None
        if apart is not None:
            self._fail(next(iter(apart.values())), f"lies apart from the image of its sample. {_AGAIN}")

    def gathered(self) -> list[Sample]:
        """Return samples whose members may lie apart, in the order of the first member of each.

        Raises
        ------
        SourceError
            As `following`; or if it is not clear which members belong together.
        """
        samples: list[Sample] = []
        of_key: dict[tuple[str, int], Sample] = {}
        joined: set[tuple[str, int]] = set()
        for name, run in self._runs():
            key = name, next(iter(run.values())).archive
            known = of_key.get(key)
            again = [] if known is None else [extension for extension in run if extension in known]
            if known is None or (again and key not in joined and _has_image(run)):
                of_key[key] = run
                samples.append(run)
            elif again:
                why = f"sample {printable(name)} has .{printable(again[0])} twice, and its members lie apart. {_AGAIN}"
                self._fail(run[again[0]], why)
            else:
                known.update(run)
                joined.add(key)
        self.apart = bool(joined)
        return samples

    def _runs(self) -> Iterator[tuple[str, Sample]]:
        """Yield keys, and the members that follow each other and have these."""
        for (key, _), run in groupby(self._keyed(), lambda keyed: keyed[:2]):
            members = [(extension, member) for _, _, extension, member in self._few(key, run)]
            terminal = self._first_dot or any("." not in extension for extension, _ in members)
            if terminal or (split := _split(members)) is None:
                yield key, self._sample(key, members)
                continue
            for part, of_part in split.items():
                yield f"{key}.{part}", self._sample(f"{key}.{part}", of_part)

    def _few(self, key: str, run: Iterator[tuple[str, int, str, Member]]) -> Iterator[tuple[str, int, str, Member]]:
        for number, keyed in enumerate(run):
            if number == _MOST_OF_KEY:
                why = f"{_MOST_OF_KEY:,} members have the key {printable(key)}, which ends at the first dot of a name"
                self._fail(keyed[-1], f"{why}. Give the files names without dots, but for the last one")
            yield keyed

    def _sample(self, key: str, members: Iterable[tuple[str, Member]]) -> Sample:
        sample: Sample = {}
        for extension, member in members:
            if extension in sample or len(sample) >= _MOST:
                why = f"has .{extension} twice" if extension in sample else f"has more than {_MOST} members"
                where = f"{printable(self._path)}: byte {member.header}: sample {printable(key)}"
                raise SourceError(
                    f"{where} {printable(why)}. The key of a sample ends at the first dot of a file's name"
                )
            sample[extension] = member
        return sample

    def _keyed(self) -> Iterator[tuple[str, int, str, Member]]:
        """Yield of each member of a sample its key, its archive, its extension, and the member."""
        for member in self._members:
            if _ODD.search(member.name):
                member = member._replace(name=self._plain(member.name))
            name = member.name
            slash = name.rfind("/") + 1
            dot = name.find(".", slash)
            if name.startswith("__") and _META.match(name):
                self._leave_out(member, name[slash:], "webdataset keeps names such as __NAME__ for itself")
                continue
            if dot <= slash:
                self._leave_out(member, name[slash:], _HIDDEN if dot == slash else "their names have no extension")
                continue
            yield name[:dot], member.archive, name[dot + 1 :].lower(), member

    def _plain(self, name: str) -> str:
        """Return a name as a plain relative path, as GNU tar extracts it; backslashes separate directories."""
        if "\\" in name:
            self._note("names have backslashes, which are taken for slashes")
            name = name.replace("\\", "/")
        parts = name.split("/")
        if ".." in parts:
            parts = parts[len(parts) - parts[::-1].index("..") :]
        if name.startswith("/") or ".." in name.split("/"):
            self._note("names begin with / or ../, which goes")
        return "/".join(part for part in parts if part not in ("", "."))

    def _leave_out(self, member: Member, base: str, why: str) -> None:
        """Say of a member that belongs to no sample."""
        head = self._window.read(member.offset, min(_HEAD, member.size))
        if is_system_file(base, lambda: head):
            self.account.not_looked_at("member", LEFT_BY_SYSTEM, [member.name])
            return
        if suffix_of(head) or is_image_name(base):
            self.account.left_out("image", why, [member.name])
        else:
            self.account.not_looked_at("member", why, [member.name])

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _fail(self, member: Member, why: str) -> NoReturn:
        raise SourceError(f"{printable(self._path)}: byte {member.header}: {printable(member.name)}: {why}")


def _has_image(sample: Sample) -> bool:
    return any(last_part(extension) in IMAGES for extension in sample)


def _split(members: list[tuple[str, Member]], depth: int = 0) -> dict[str, list[tuple[str, Member]]] | None:
    """Return members of one key, none of which has a plain extension, by what else belongs to their keys.

    None where that makes samples without an image, or of each member an image by itself, such as ``left.jpg`` and
    ``right.jpg``: these may be several images of one sample. Numbers as in ``0001.jpg`` and ``0001.v2.jpg`` are not.
    """
    parts: dict[str, list[tuple[str, Member]]] = {}
    for extension, member in members:
        part, _, rest = extension.partition(".")
        parts.setdefault(part, []).append((rest, member))
    found: dict[str, list[tuple[str, Member]]] = {}
    for part, of_part in parts.items():
        if any("." not in extension for extension, _ in of_part):
            found[part] = of_part
        elif depth < _MOST_DOTS and (deeper := _split(of_part, depth + 1)) is not None:
            found |= {f"{part}.{name}": of_name for name, of_name in deeper.items()}
        else:
            return None
    if not all(any(last_part(extension) in IMAGES for extension, _ in of_part) for of_part in found.values()):
        return None
    alone = len(found) > 1 and all(len(of_part) == 1 for of_part in found.values())
    return None if alone and not all(part.partition(".")[0].isdigit() for part in found) else found
