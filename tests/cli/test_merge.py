"""`packer merge`, and `packer convert` of packs."""

from __future__ import annotations

from pathlib import Path

from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._packs.digest import digest
from packer._sources import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.making import packer_many


def test_packs_are_joined_and_converted(tmp_path: Path) -> None:
    for name, classes in [("a", 2), ("b", 3)]:
        draw_imagefolder(tmp_path / name, classes=classes, per_class=2, size=(16, 16))
        convert(imagefolder_source(tmp_path / name), tmp_path / f"{name}.lmdb")
    draw_imagefolder(tmp_path / "c", classes=1, per_class=3, size=(16, 16))
    (tmp_path / "c" / "class_00").rename(tmp_path / "c" / "zebra")
    convert(imagefolder_source(tmp_path / "c"), tmp_path / "c.h5")
    pack = {name: tmp_path / name for name in ("a.lmdb", "b.lmdb", "c.h5", "both.pth", "small.h5", "copy.lmdb")}
    results = packer_many(
        [
            ["merge", pack["a.lmdb"], pack["c.h5"], pack["both.pth"]],
            ["merge", "--classes", "union", pack["a.lmdb"], pack["c.h5"], pack["both.pth"]],
            ["merge", pack["a.lmdb"], pack["b.lmdb"], tmp_path / "clash.lmdb", "--classes", "union"],
            ["convert", pack["both.pth"], pack["copy.lmdb"]],
            ["convert", pack["copy.lmdb"], pack["small.h5"], "--resize", "8", "--limit", "5"],
            ["convert", pack["a.lmdb"], tmp_path / "a.h5", "--classes-from", pack["both.pth"]],
            ["merge", pack["a.lmdb"], tmp_path / "alone"],
            ["merge", tmp_path / "missing.lmdb", tmp_path / "out.lmdb"],
        ]
    )
    assert [result.returncode for result in results] == [1, 0, 1, 0, 0, 0, 1, 1]
    assert "--classes union" in results[0].stderr
    assert "7 samples, 3 classes" in results[1].stdout
    assert "two samples" in results[2].stderr
    assert digest(pack["copy.lmdb"]) == digest(pack["both.pth"])
    with open_pack(pack["small.h5"]) as reader:
        assert reader.manifest.codec == "jpeg"
        assert reader.table.height.tolist() == [8] * 5
    with open_pack(tmp_path / "a.h5") as reader:
        assert reader.manifest.classes == ["class_00", "class_01", "zebra"]
    assert not any("Traceback" in result.stderr for result in results)
