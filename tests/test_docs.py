"""The README and the pages below docs/: their code runs, the names in them exist, their links lead somewhere."""

from __future__ import annotations

import functools
import json
import os
import pickle
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._cli import cli
from packer._sources.base import ReadBuffer
from packer._sources.scan_list import listed_source
from packer._table import COLUMNS
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many
from tests.containers.everywhere import GOLDEN
from tests.containers.lmdbs import write_lmdb

ROOT = Path(packer.__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "formats").glob("*.md"))]
CHINESE = {
    "README.zh.md": "README.md",
    **{f"docs/zh/{name}.md": f"docs/{name}.md" for name in ("start", "imagenet", "augmenting")},
}
"""Pages in Chinese, and the English pages that they translate."""

NAMING = [*PAGES, *(ROOT / name for name in ("formats.md", "SECURITY.md", "CONTRIBUTING.md", "benchmarks/README.md"))]
LINKED = [*NAMING, *(ROOT / name for name in CHINESE), ROOT / "CHANGELOG.md"]

SMALLER = {
    r"batch_size=\d+": "batch_size=4",
    r"num_workers=\d+": "num_workers=1",
    r"Loader\((dataset|val), \d+,": r"Loader(\1, 4,",
    r"per_class=\d+": "per_class=2, size=(48, 64)",
    r"range\(3\)": "range(2)",
}
"""Replacements that shorten the pages' loops: patterns and their new text."""


def fenced(path: Path, language: str) -> list[str]:
    """Return the blocks of code of one language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)


BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    # These have tests of their own: tests/test_readme.py, tests/frameworks and tests/plugins.
    if page.stem not in {"README", "frameworks", "extending"}
    for number, block in enumerate(fenced(page, "python"))
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files that the pages assume."""
    root = tmp_path_factory.mktemp("docs")
    draw_imagefolder(root / "imagenet" / "train", classes=3, per_class=4, size=(48, 64))
    draw_imagefolder(root / "imagenet" / "val", classes=3, per_class=2, size=(48, 64), seed=1)
    packer.convert(root / "imagenet" / "train", root / "train.lmdb")
    packer.convert(root / "imagenet" / "train", root / "photos.lmdb")
    packer.convert(root / "imagenet" / "val", root / "drawings.h5")
    packer.convert(root / "imagenet" / "val", root / "val.lmdb", classes_from=root / "train.lmdb")
    masked = ({"image": np.full((48, 64, 3), number, np.uint8), "mask": np.eye(48, 64) > 0} for number in range(8))
    packer.pack(masked, root / "seg.lmdb", fields={"mask": "mask"})
    shutil.copytree(GOLDEN / "webdataset", root / "shards")
    draw_pairs_and_boxes(root)
    return root


PACKS = ("train.lmdb", "val.lmdb", "photos.lmdb", "drawings.h5", "seg.lmdb", "coco.lmdb", "old.lmdb")
"""The packs that blocks of code assume."""


def draw_pairs_and_boxes(root: Path) -> None:
    """Draw images with masks and a table, images with COCO's annotations, and an LMDB of pickled pairs."""
    photos = sorted((root / "imagenet" / "train").rglob("*.jpg"))
    for folder in ("images/cat", "masks", "train2017"):
        (root / folder).mkdir(parents=True)
    annotation = {"category_id": 1, "iscrowd": 0, "area": 1600, "bbox": [2, 2, 40, 40]}
    annotation |= {"segmentation": [[2, 2, 42, 2, 42, 42]]}
    document: dict[str, Any] = {"categories": [{"id": 1, "name": "cat"}], "images": [], "annotations": []}
    for number, photo in enumerate(photos):
        shutil.copy(photo, root / "images" / "cat" / f"{number}.jpg")
        shutil.copy(photo, root / "train2017" / f"{number}.jpg")
        with Image.open(photo) as image:
            width, height = image.size
        Image.new("L", (width, height), number).save(root / "masks" / f"{number}.png")
        document["images"].append({"id": number, "file_name": f"{number}.jpg", "width": width, "height": height})
        document["annotations"].append({"id": number, "image_id": number, **annotation})
    (root / "instances_train2017.json").write_text(json.dumps(document))
    rows = [f"cat/{number}.jpg,an image,{number}.5" for number in range(len(photos))]
    (root / "t.csv").write_text("\n".join(["path,caption,age", *rows]))
    val = [path.relative_to(root / "imagenet" / "val") for path in (root / "imagenet" / "val").rglob("*.jpg")]
    (root / "val.csv").write_text("\n".join(["path,label", *(f"{path},{path.parent}" for path in val)]))
    packer.convert(root / "train2017", root / "coco.lmdb", coco=[root / "instances_train2017.json"])
    keys = [f"{number}".encode() for number in range(len(photos))]
    pairs = {key: pickle.dumps((photo.read_bytes(), 0)) for key, photo in zip(keys, photos, strict=True)}
    write_lmdb(root / "old.lmdb", [*pairs.items(), (b"__keys__", pickle.dumps(keys))])


def my_transform(image: Any) -> Any:
    """Stand for the reader's own transform: a PIL image becomes a tensor."""
    import numpy as np
    import torch

    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1)


MY_DATASET = [(np.zeros((3, 8, 8), np.float32), label) for label in range(8)]
"""Stands for the reader's own data set."""


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_of_python_run(block: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in re.findall(r"^# before: needs ([\w.]+)", block):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    for name in ("imagenet", "shards"):
        os.symlink(prepared / name, name)
    if "packer.convert(" not in block:
        for name in PACKS:
            shutil.copy(prepared / name, name)
    for pattern, smaller in SMALLER.items():
        block = re.sub(pattern, smaller, block)
    exec(
        compile(block, "the page", "exec"),
        {"__name__": "__main__", "my_transform": my_transform, "my_dataset": MY_DATASET},
    )


def test_the_options_of_the_tasks_run(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("imagenet", "shards"):
        os.symlink(prepared / name, name)
    shutil.copy(prepared / "train.lmdb", "train.lmdb")
    photos = [path.relative_to("imagenet/train") for path in Path("imagenet/train").rglob("*.jpg")]
    rows = [f"{photo},{photo.parent.name}" for photo in photos]
    Path("train.csv").write_text("\n".join(["file,class", *rows]))
    section = (ROOT / "docs" / "tasks.md").read_text("utf-8").partition("## Converting\n")[2].partition("\n## ")[0]
    spans = [span for line in section.splitlines() if line.startswith("|") for span in re.findall(r"`(.*?)`", line)]
    lines = [shlex.split(line, comments=True)[1:] for line in spans if re.match("packer [a-z]+ ", line)]
    lines += [
        ["convert", "imagenet/train", f"{number}.lmdb", *shlex.split(span)]
        for number, span in enumerate(spans)
        if span.startswith("--") and span not in {"--cluster", "--tiles"}  # have tests of their own
    ]
    assert len(lines) >= 14
    for line, result in zip(lines, packer_many(lines), strict=True):
        assert result.returncode == 0, (line, result.stderr)


SEGMENTED = {
    "ADEChallengeData2016/images/training/{}.jpg": "ADEChallengeData2016/annotations/training/{}.png",
    "leftImg8bit/train/ulm/ulm_{}_leftImg8bit.png": "gtFine/train/ulm/ulm_{}_gtFine_labelIds.png",
    "DUTS-TR/DUTS-TR-Image/{}.jpg": "DUTS-TR/DUTS-TR-Mask/{}.png",
}
"""The paths of images and masks in some data sets."""

COMMANDS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    if page.stem not in {"README", "containers", "extending"}  # have tests of their own
    for number, block in enumerate([*fenced(page, "sh"), *fenced(page, "bash")])
    if re.search(r"^packer ", block, re.MULTILINE) and not any(path.partition("/")[0] in block for path in SEGMENTED)
]

SHORTER = {
    r".*--cluster .*": "",  # needs SLURM
    r"packer convert .*(://|urls\.csv).*": "",  # needs a store of objects; has tests of its own
    r"packer doctor --train .*": "",  # runs the reader's own script; has tests of its own
    r" --tiles": "",  # tiles have tests of their own
    r"--parts \d+": "--parts 2",
    r"imagenet21k": "imagenet/train",
    r"/shared/": "",
}
"""Replacements that let the commands run here: patterns and their new text."""


@pytest.mark.parametrize("block", COMMANDS)
def test_blocks_of_commands_run(block: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PACKER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("imagenet", "shards", "images", "masks", "train2017", "t.csv", "val.csv", "instances_train2017.json"):
        os.symlink(prepared / name, name)
    os.symlink(prepared / "imagenet", "photos")
    for pattern, shorter in SHORTER.items():
        block = re.sub(pattern, shorter, block)
    lines = [shlex.split(line, comments=True)[1:] for line in block.splitlines() if line.startswith("packer ")]
    made = {word for line in lines if line[0] in ("convert", "index", "estimate") for word in line[2:3]}
    if any(line[0] == "append" for line in lines) and "train.lmdb" not in made:
        packer.convert("imagenet/train", "train.lmdb", parts=1)
        draw_imagefolder(Path("more/class_00"), classes=1, per_class=1, size=(48, 64), seed=2)
    for name in PACKS:
        if name not in made and not Path(name).exists():
            shutil.copy(prepared / name, name)
    for line in lines:
        assert cli.main(line, prog_name="packer", standalone_mode=False) in (None, 0), line


def test_the_commands_for_masks_find_every_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for image, mask in SEGMENTED.items():
        for number in range(3):
            for path, color in ((image, 100), (mask, number)):
                Path(path.format(number)).parent.mkdir(parents=True, exist_ok=True)
                Image.new("L", (8, 6), color).save(path.format(number))
    lines = [shlex.split(line)[1:] for line in fenced(ROOT / "docs" / "fields.md", "bash")[0].splitlines()]
    assert len(lines) == len(SEGMENTED)
    scans = [["scan", source, f"{source.partition('/')[0]}.scan", *more] for _, source, _, *more in lines]
    for result in packer_many(scans):
        assert result.returncode == 0, result.stderr
    for (_, source, listing, *_), mask in zip(scans, SEGMENTED.values(), strict=True):
        listed = listed_source(listing)
        assert [(field.name, field.kind) for field in listed.fields] == [("mask", "mask")], source
        for number in range(3):
            (blob,) = listed.values(number, ReadBuffer())
            assert blob == Path(mask.format(number)).read_bytes()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "examples" / "train.py"], ids=lambda page: page.name)
def test_every_name_in_packer_is_public(page: Path) -> None:
    named = set(re.findall(r"(?<![\w/.])packer\.([a-zA-Z]\w*)", page.read_text("utf-8")))
    public = {"augment", "contrib", "crops", "errors", "plugins", "samplers", "testing"}
    assert named <= {*packer.__all__, *public, "containers", "formats"}  # the last are groups of entry points


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


STARTS = [ROOT, *(ROOT / name for name in ("packer", "packer/_images", "tests", "benchmarks"))]
"""The directories to which paths on the pages are relative."""

CODE = re.compile(r"(?:[\w.-]+/)*(?:[\w-]+\.(?:py|c|h|md|sbatch|yaml|svg)|test_\w+)")
OWN = re.compile(r"(?:packer|tests|fuzz|docs|scripts|benchmarks|examples|_[a-z]+|native|jpeg)/[\w./-]*|_[a-z]+")


def names_of_files(page: Path) -> set[str]:
    """Return the names in a page's code and commands: files of code, tests, and folders of the repository."""
    text = page.read_text("utf-8")
    spans = re.findall(r"`([^`\s]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    named = {span for span in spans if CODE.fullmatch(span) or OWN.fullmatch(span)}
    named |= set(re.findall(r"(?<![\w./-])(?:scripts|benchmarks|examples|fuzz|tests)/[\w./-]*\w", text))
    keys = {f"packer/{name}" for name in (*COLUMNS, "manifest")}  # of LMDB, in formats.md
    return {name for name in named - keys if "NAME" not in name and "/results/" not in name}


@functools.cache
def bare_names() -> set[str]:
    """Return the names of files of code, of tests and of their modules."""
    bare = {path.name for folder in ("packer", "tests", "benchmarks") for path in (ROOT / folder).rglob("*")}
    for path in (ROOT / "tests").rglob("test_*.py"):
        bare |= {path.stem, *re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)}
    return bare


@pytest.mark.parametrize("page", NAMING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_test_that_a_page_names_is_there(page: Path) -> None:
    """A file may be named without its folder."""
    for name in names_of_files(page):
        there = any((start / name).exists() for start in [*STARTS, page.parent])
        assert there or name.rstrip("/") in bare_names(), name


@pytest.mark.parametrize("page", NAMING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    pattern = r"(?<![\w./-])(?:fuzz|tests|packer)\.(?:_\w+|testing|[a-z]+(?=`))(?:\.\w+)*"
    for name in re.findall(pattern, page.read_text("utf-8")):
        first, second, *_ = name.split(".")
        found = [ROOT / first / second, ROOT / first / f"{second}.py"]
        assert any(path.exists() for path in found) or second in packer.__all__, name
