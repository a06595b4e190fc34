"""Each option that selects images has an effect on a kind of source, or that kind refuses it by name."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._conversion.options import SourceOptions, options_of
from packer._conversion.request import SourceRequest, source_of_objects
from packer._sources.scan_list import write_listing
from packer._storage.remote.urls import user_path
from packer.errors import OptionError, PackerError, flag, message_of
from tests.sourcekinds import Source, coco, draw, imagefolder, masks, unlabeled, voc, yolo


def flawed(source: Source, folder: str = ".") -> Source:
    """Put a hidden image and one of another suffix into a directory of images."""
    draw(source[0] / folder / ".hidden.png")
    draw(source[0] / "image.png").rename(source[0] / folder / "image.dat")
    return source


def flawed_tree(root: Path) -> Source:
    """Return classes with a hidden image, one of another suffix, and one outside of any class."""
    source = flawed(imagefolder(root), "cat")
    draw(source[0] / "outside.png")
    return source


def empty_class(root: Path) -> Source:
    source, _ = imagefolder(root)
    (source / "empty").mkdir()
    return source, {}


def lacking_mask(root: Path) -> Source:
    source, options = masks(root)
    (root / "masks" / "0.png").unlink()
    return source, options


def metadata(root: Path, rows: int = 3, folder: str = "cat") -> Source:
    """Return images below a directory, and a table with rows for some of them."""
    for number in range(3):
        draw(root / "tree" / folder / f"{number}.png")
    names = (f"{folder}/{number}.png" for number in range(rows))
    (root / "tree" / "metadata.jsonl").write_text("\n".join(json.dumps({"file_name": n, "text": "a"}) for n in names))
    (root / "masks").mkdir()
    for number in range(3):
        draw(root / "masks" / f"{number}.png")
    return root / "tree", {}


def table(root: Path, text: str = "path,label,file,x\n0.png,a,1.png,2\n1.png,b,2.png,3\n", **options: Any) -> Source:
    source, _ = unlabeled(root)
    (root / "labels.csv").write_text(text)
    return source, {"labels": root / "labels.csv", **options}


def lines(root: Path, label: str = "null") -> Source:
    source, _ = unlabeled(root)
    (root / "labels.jsonl").write_text(f'{{"path": "0", "label": "a"}}\n{{"path": "1", "label": {label}}}\n')
    return source, {"labels": root / "labels.jsonl"}


def pack(root: Path) -> Source:
    source, _ = imagefolder(root)
    packer.convert(source, root / "a.lmdb")
    return root / "a.lmdb", {}


def listed(root: Path) -> Source:
    source, _ = imagefolder(root)
    write_listing(SourceRequest(src=source).open(root / "a.scan", None), root / "a.scan")
    return root / "a.scan", {}


def archive(root: Path) -> Source:
    source, _ = imagefolder(root)
    with zipfile.ZipFile(root / "a.zip", "w") as file:
        for path in sorted(source.rglob("*.png")):
            file.write(path, path.relative_to(source).as_posix())
    return root / "a.zip", {}


def rows(root: Path, labels: list[int | None]) -> Source:
    """Return a container with labels, and a column that is not used."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    source, _ = unlabeled(root)
    images = [path.read_bytes() for path in sorted(source.iterdir())]
    columns = {"image": images, "label": pyarrow.array(labels, "int64"), "age": [1, 2, 3]}
    parquet.write_table(pyarrow.table(columns), root / "a.parquet")
    return root / "a.parquet", {}


def unread_labels(root: Path) -> Source:
    """Return an archive that has no labels, but a file that looks like them."""
    source, _ = archive(root)
    with zipfile.ZipFile(source, "w") as file:
        file.write(draw(root / "0.png"), "0.png")
        file.writestr("labels.csv", "path,label\n0.png,a\n")
    return source, {}


def voc_split(root: Path) -> Source:
    source, options = voc(root)
    lists = source / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("0\ngone\n")
    return source, {**options, "split": "train"}


def yolo_split(root: Path) -> Source:
    source, options = yolo(root)
    (root / "data.yaml").write_text("names: [cat, dog]\ntrain: train.txt\n")
    (root / "train.txt").write_text("images/0.png\nimages/gone.png\n")
    return source, {**options, "split": "train"}


Builder = Callable[[Path], Source]
KINDS: dict[str, list[Builder]] = {
    "tree": [flawed_tree, empty_class],
    "tree with files": [lacking_mask, lambda root: (flawed_tree(root)[0], masks(root)[1]), empty_class],
    "images": [lambda root: flawed(unlabeled(root)), unlabeled],
    "metadata": [metadata, lambda root: metadata(root, 2), lambda root: flawed(metadata(root))],
    "table": [
        table,
        lambda root: table(root, "path,label\n0,a\n1,b\n2,\n"),
        lambda root: table(root, "path;label\n0.png;a\n"),
        lambda root: table(root, "0.png,a\n1.png,b\n"),
        lambda root: table(root, "path,label,file\n0.png,a,gone.png\n", columns={"file": "mask"}),
        lambda root: table(root, "path,label\n0,1\n1,2\n"),
    ],
    "table of lines": [lines, lambda root: lines(root, '"b"')],
    "coco": [coco, lambda root: flawed(coco(root)), lambda root: lacking_image(coco(root))],
    "voc": [voc, lambda root: flawed(voc(root), "JPEGImages"), voc_split],
    "yolo": [yolo, lambda root: flawed(yolo(root)), yolo_split],
    "pack": [pack],
    "list": [listed],
    "archive": [archive, unread_labels],
    "rows": [lambda root: rows(root, [0, 1, 1]), lambda root: rows(root, [None] * 3)],
}
"""Sources of each kind; some of them need an option, or have something that one leaves out."""

VALUES: dict[str, list[Any]] = {
    "labels": ["labels.csv"],
    "path_column": ["file"],
    "label_column": ["x"],
    "delimiter": [";"],
    "label_type": ["float"],
    "suffix": [".png"],
    "fields": [{"mask": "../masks/{stem}.png"}, {"other:bytes": "{path}"}],
    "columns": [{"x": "int64"}],
    "on_missing": ["null", "skip"],
    "keys": [{"label": "age"}],
    "coco": ["coco.json"],
    "voc": ["VOC2012"],
    "yolo": ["data.yaml"],
    "split": ["train"],
    "extensions": [".dat"],
    "classes_from": ["classes.lmdb"],
    "limit": [1],
    "sample": [1],
    "where": ["label == 0"],
}
"""Values of the options that are no flags; those that name a file are paths below the source's directory."""

ANYWAY = {
    "no_metadata": {"tree", "tree with files", "images", "table", "table of lines", "coco", "voc", "yolo"},
    "unlabeled": {"coco", "voc", "yolo"},
    "no_classes": {"images", "coco", "voc", "yolo"},
    "strict": {"images"},
    "suffix": {"table of lines"},
}
"""By options, the kinds whose sources are as the option asks anyway: it may be said, and changes nothing."""


def lacking_image(source: Source) -> Source:
    (source[0] / "0.png").unlink()
    return source


def listing(source: Path, options: dict[str, Any], root: Path) -> Any:
    """Return the content of the list of images, or the message of the error; raise only if an option is refused."""
    try:
        request = SourceRequest(src=source, **options)
        made = request.open(root / "out.lmdb", request.classes())
    except OptionError:
        raise
    except PackerError as error:
        return str(error)
    account = made.account and made.account.to_json()
    return made.describe(), list(made.names), made.labels.tolist(), made.notes, account, made.doubts, made.others.counts


class Sources:
    """Builds each source once, as conversions do not change it, and lists it once for each set of options."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.build = functools.cache(self._build)
        self._listed: dict[tuple[Path, str], Any] = {}
        pixels = {"image": draw(root / "x.png"), "label": "b"}
        packer.pack([pixels], root / "classes.lmdb", classes=["b", "a", "dog", "cat", "1", "0"])

    def _build(self, build: Builder) -> tuple[Path, Source]:
        root = Path(tempfile.mkdtemp(dir=self._root))
        os.link(self._root / "classes.lmdb", root / "classes.lmdb")
        return root, build(root)

    def refused_or_effective(self, build: Builder, name: str, value: Any) -> str:
        """Return how a source treats an option: "refused" by its name, "effective", or an empty text for no effect."""
        root, (source, own) = self.build(build)
        if name in ("labels", "coco", "voc", "yolo", "classes_from"):
            value = [root / value] if name == "coco" else root / value
        own = {other: [given] if other == "coco" else given for other, given in own.items() if other != name}
        try:
            shown = listing(source, {**own, name: value}, root)
            if (key := (root, str(own))) not in self._listed:
                self._listed[key] = listing(source, own, root)
            return "effective" if shown != self._listed[key] else ""
        except OptionError as error:
            return "refused" if flag(name) in message_of(error) else "refused for another option"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(tmp_path_factory.mktemp("sources"))


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        (name, kind, value)
        for name, option in options_of(SourceOptions)
        for value in (VALUES[name] if option.kind != "flag" else [True])
        for kind in KINDS
    ],
    ids=str,
)
def test_an_option_has_an_effect_or_is_refused(name: str, kind: str, value: Any, sources: Sources) -> None:
    found = {sources.refused_or_effective(build, name, value) for build in KINDS[kind]}
    assert "effective" in found or found == {"refused"} or kind in ANYWAY.get(name, ())


@pytest.mark.parametrize(
    "name", ["fields", "coco", "voc", "yolo", "any_image", "keys", "no_metadata", "allow_empty", "on_missing"]
)
def test_options_of_a_disk_are_refused_for_objects(name: str, tmp_path: Path) -> None:
    value = {"on_missing": "skip", "fields": ["mask=masks/{stem}.png"], "keys": ["label=x"], "coco": [tmp_path]}.get(
        name, True
    )
    with pytest.raises(OptionError) as caught:
        source_of_objects(SourceRequest(src=user_path("s3://bucket/images"), **{name: value}), None)
    assert flag(name) in message_of(caught.value)
    assert "applies only to files on a disk, but s3://bucket/images is a URL or a table of URLs" in str(caught.value)
