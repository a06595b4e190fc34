"""Directories and containers, opened as a dataset without a conversion."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import pickle
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import PILToTensor

import packer
from packer import Loader, open_dataset, stage
from packer.testing.photos import draw_imagefolder
from tests.command import python, started
from tests.conftest import Trees
from tests.sources.test_index import bag


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=3, per_class=4, size=(60, 80))


def pixels(dataset: object) -> list[tuple[bytes, int]]:
    return [(torch.as_tensor(image).numpy().tobytes(), label) for image, label in dataset]  # type: ignore[attr-defined]


def reference(tree: Path) -> ImageFolder:
    return ImageFolder(str(tree), PILToTensor())


def test_a_directory_gives_what_imagefolder_gives(tree: Path) -> None:
    with open_dataset(tree) as dataset:
        assert pixels(dataset) == pixels(reference(tree))
        assert (dataset.classes, list(dataset.targets)) == (
            ImageFolder(str(tree)).classes,
            ImageFolder(str(tree)).targets,
        )


@pytest.mark.parametrize("form", ["tree", "shards"])
def test_batches_are_those_of_a_pack(form: str, tree: Path, tmp_path: Path) -> None:
    """Crops, order and pixels are equal; C opens the files of a tree, and reads ranges of shards."""
    pack = packer.convert(tree, tmp_path / "x.lmdb").destination
    root = tree if form == "tree" else bag(tmp_path / "x.bag", [f.read_bytes() for f in sorted(tree.rglob("*.jpg"))])
    settings = {"crop": packer.RandomResizedCrop(32)}
    with open_dataset(pack, **settings) as own, open_dataset(root, **settings) as other:
        for one, same in zip(Loader(own, 5, shuffle=True, seed=1), Loader(other, 5, shuffle=True, seed=1), strict=True):
            assert torch.equal(one[0], same[0])
            assert form == "shards" or torch.equal(one[1], same[1])


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize(("method", "count"), [("fork", 2), ("forkserver", 2)])
def test_processes_read_an_index(method: str, count: int, tree: Path, tmp_path: Path) -> None:
    index = packer.index(tree, tmp_path / "x.index").destination
    with open_dataset(index, crop=packer.CenterCrop(32)) as dataset:
        expected = torch.stack([image for image, _ in dataset])
        context = multiprocessing.get_context(method)
        loader = DataLoader(dataset, 6, num_workers=count, multiprocessing_context=context)
        assert torch.equal(torch.cat([images for images, _ in loader]), expected)
        again = pickle.loads(pickle.dumps(dataset))
        assert torch.equal(torch.stack([image for image, _ in again]), expected)
        with open_dataset(index, crop=packer.CenterCrop(32)) as second, ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda index: (second, dataset)[index % 2][index][0], range(12))
            assert torch.equal(torch.stack(list(found)), expected)


RANK = """
import sys, torch
import packer
rank, root, place = int(sys.argv[1]), sys.argv[2], sys.argv[3]
for kept in (place, None):
    dataset = packer.open_dataset(root, index=kept, crop=packer.CenterCrop(16))
    sampler = packer.ShuffleSampler(len(dataset), rank=rank, world=2, seed=3)
    print(*(dataset.samples[index][0] for index in sampler))
"""


def test_ranks_that_open_a_directory_share_its_images(tree: Path, tmp_path: Path) -> None:
    """Both ranks make the same index file at once; then each makes an index in memory."""
    ranks = [started(RANK, rank, tree, tmp_path / "kept.index") for rank in range(2)]
    names = [[line.split() for line in rank.communicate()[0].splitlines()] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    for first, second in zip(*names, strict=True):
        assert len(first) == len(second) == 6
        assert len({*first, *second}) == 12
    assert [len(lines) for lines in names] == [2, 2]
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]


@pytest.mark.parametrize("form", ["tree", "shards"])
def test_a_kept_index_is_used_until_the_images_change(form: str, tree: Path, tmp_path: Path) -> None:
    images = sorted(tree.rglob("*.jpg"))
    kept = tmp_path / "kept.index"
    if form == "tree":
        root = tmp_path / "copy"
        shutil.copytree(tree, root)
    else:
        root = bag(tmp_path / "x.bag", [file.read_bytes() for file in images])

    def opened() -> tuple[int, int]:
        open_dataset(root, index=kept).close()
        with packer.open_pack(kept) as reader:
            return len(reader), os.stat(kept).st_ino

    count, inode = opened()
    assert opened() == (count, inode) == (12, inode)
    if form == "tree":
        shutil.copy(images[0], root / "class_00" / "zz.jpg")
    else:
        bag(root, [file.read_bytes() for file in [*images, images[0]]])
    assert opened()[0] == 13
    if form == "tree":
        (root / "class_00" / "zz.jpg").write_bytes(images[1].read_bytes() + b"more")
        with open_dataset(root, index=kept, output="bytes") as dataset:  # the same name, other content
            place = [name for name, _ in dataset.samples].index("class_00/zz.jpg")
            assert dataset[place][0] == images[1].read_bytes() + b"more"


def test_an_index_of_other_files_is_neither_used_nor_removed(tree: Path, tmp_path: Path) -> None:
    """Two trees may have the same names, and a pack in the layout of another tool has an index too."""
    other, kept, pack = tmp_path / "other", tmp_path / "kept.index", tmp_path / "mine.wds"
    draw_imagefolder(other, classes=3, per_class=4, size=(60, 80), seed=5)
    open_dataset(tree, index=kept).close()
    with pytest.raises(packer.SourceError, match=r"kept\.index: is the index of files in .*trees"):
        open_dataset(other, index=kept)
    packer.convert(tree, pack)
    copied = stage(kept, tmp_path / "fast")
    (other / "class_00" / "zz.jpg").write_bytes(next(tree.rglob("*.jpg")).read_bytes())
    for place in (pack, copied):
        with pytest.raises(packer.SourceError, match="is a pack, not an index"):
            open_dataset(other, index=place)
        assert packer.verify(place) == []
    shutil.rmtree(other)
    shutil.copytree(tree, other)
    moved = tmp_path / "moved"
    open_dataset(other, index=tmp_path / "other.index").close()
    other.rename(moved)
    with open_dataset(moved, index=tmp_path / "other.index") as dataset:  # its files are gone: it is made anew
        assert pixels(dataset) == pixels(reference(tree))


OPEN = """
import sys, packer
dataset = packer.open_dataset(sys.argv[1])
print(dataset.reader.path, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="what is open there cannot be removed")
def test_what_a_killed_process_left_in_memory_is_removed(tree: Path) -> None:
    """The directory of a living process stays."""
    processes = [started(OPEN, tree) for _ in range(2)]
    killed, living = (Path(process.stdout.readline().strip()).parent for process in processes)
    processes[0].kill()
    processes[0].communicate()
    assert killed.is_dir()
    open_dataset(tree).close()
    assert not killed.exists()
    assert living.is_dir()
    processes[1].communicate()
    assert not living.exists()


CHILD = """
import sys
from multiprocessing import get_context
from packer import open_dataset

def opened(tree):
    print(open_dataset(tree).reader.path, open_dataset(tree).reader.path, flush=True)

if __name__ == "__main__":
    opened(sys.argv[1])
    child = get_context(sys.argv[2]).Process(target=opened, args=sys.argv[1:2])
    child.start()
    child.join()
"""


@pytest.mark.parametrize("start", multiprocessing.get_all_start_methods())
def test_a_process_has_one_directory_in_memory_and_removes_it(tree: Path, tmp_path: Path, start: str) -> None:
    """A process of multiprocessing does too, although it ends without atexit."""
    script = tmp_path / "opens.py"
    script.write_text(CHILD)
    lines = python(script, tree, start).stdout.splitlines()
    own, child = ({Path(path).parents[1] for path in line.split()} for line in lines)
    assert [len(own), len(child)] == [1, 1]
    assert own != child
    assert not any(path.exists() for path in own | child)


def test_a_changed_image_is_told_and_never_another(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(tree, root)
    dataset = open_dataset(root, crop=packer.CenterCrop(32), on_error="raise")
    image = root / "class_01" / "0002.jpg"
    image.write_bytes((root / "class_02" / "0000.jpg").read_bytes())
    with pytest.raises(packer.CorruptPackError, match=r"class_01/0002\.jpg"):
        list(Loader(dataset, 4))
    image.unlink()
    with pytest.raises(packer.CorruptPackError, match=r"class_01/0002\.jpg"):
        list(Loader(dataset, 4))
    assert len([dataset[index] for index in range(12) if index != 6]) == 11


def test_an_index_in_memory(tree: Path, tmp_path: Path) -> None:
    index = packer.index(tree, tmp_path / "x.index").destination
    with open_dataset(index, cache="ram") as dataset, open_dataset(index, stage=tmp_path / "fast") as staged:
        assert pixels(dataset) == pixels(staged) == pixels(reference(tree))


@pytest.mark.parametrize("kind", ["tar", "tree"])
def test_a_sample_that_cannot_be_listed_has_the_command_that_leaves_it_out(
    tree: Path, tmp_path: Path, kind: str
) -> None:
    image = next(tree.rglob("*.jpg"))
    source = tmp_path / "source"
    if kind == "tar":
        with tarfile.open(source, "w") as file:
            for member in ("a.jpg", "b.jpg", "b.jpg"):
                file.add(image, member)
    else:
        shutil.copytree(image.parent, source / image.parent.name)
        names = [f"{image.parent.name}/{path.name}" for path in sorted(image.parent.iterdir())]
        labels = {"labels": [[names[0], "x"], *([name, 0] for name in names[1:])]}
        (source / "dataset.json").write_text(json.dumps(labels))
    with pytest.raises(packer.SourceError, match=r"packer index SRC OUT.index --on-error skip") as caught:
        packer.open_dataset(source)
    assert "on_error=" not in str(caught.value)
    packer.index(source, tmp_path / "out.index", on_error="skip")
    assert len(packer.open_dataset(tmp_path / "out.index")) >= 1


def test_an_image_that_cannot_be_read_is_replaced_where_one_says_so(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=3, size=(40, 30))
    bad = sorted((tmp_path / "tree").rglob("*.jpg"))[1]
    bad.write_bytes(b"no image at all")
    with pytest.raises(packer.ImageError, match=r"packer index SRC OUT.index"):
        open_dataset(tmp_path / "tree")
    for cut in (b"no image at all", b""):
        bad.write_bytes(cut)
        crop = packer.RandomResizedCrop(16)
        dataset = open_dataset(tmp_path / "tree", crop=crop, seed=1, on_error="replace", max_bad=0.5)
        assert len(dataset) == 6
        with pytest.warns(UserWarning, match="replaces it"):
            batches = list(Loader(dataset, batch_size=6))
        assert batches[0][0].shape == (6, 3, 16, 16)
        assert torch.equal(dataset[1][0], dataset[1][0])


def test_keys_say_what_a_container_has(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        for name, size in (("a.left.png", 8), ("a.right.png", 9)):
            stream = io.BytesIO()
            Image.new("RGB", (size, size)).save(stream, "PNG")
            info = tarfile.TarInfo(name)
            info.size = stream.tell()
            stream.seek(0)
            file.addfile(info, stream)
    for keys, side in (({"image": "left.png"}, 8), (["image=right.png"], 9)):
        kept = open_dataset(tmp_path / "a.tar", index=tmp_path / "kept.index", keys=keys)
        for dataset in (kept, open_dataset(tmp_path / "a.tar", keys=keys)):
            assert dataset[0][0].shape == (3, side, side)
    packer.convert(tmp_path / "a.tar", tmp_path / "a.lmdb", keys=["image=left.png"])
    with pytest.raises(ValueError, match=r"a.lmdb is a pack"):
        open_dataset(tmp_path / "a.lmdb", keys={"image": "left.png"})


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_a_staged_index_follows_no_link_out_of_itself(tree: Path, tmp_path: Path) -> None:
    packer.index(tree, tmp_path / "a.index")
    staged = Path(stage(tmp_path / "a.index", tmp_path / "node"))
    first = next(path for path in sorted((staged / "files").rglob("*.jpg")))
    before, secret = first.stat(), tmp_path / "secret.jpg"
    shutil.copy2(first, secret)
    first.unlink()
    first.symlink_to(secret)
    os.utime(secret, ns=(before.st_atime_ns, before.st_mtime_ns))
    with packer.open_pack(staged) as reader, pytest.raises(packer.CorruptPackError, match="link"):
        reader.read(0)
    with pytest.raises(packer.CorruptPackError, match="link"):
        next(iter(Loader(open_dataset(staged, crop=packer.CenterCrop(8)), batch_size=2)))
    (staged / "files").rename(tmp_path / "elsewhere")
    (staged / "files").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(packer.CorruptPackError, match="it is a link"):
        packer.open_pack(staged)
