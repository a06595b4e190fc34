"""What is asked for of images with annotations: in COCO's format, in Pascal VOC's layout, or in YOLO's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer._account import BadSamples
from packer._sources import ImageRule, Source
from packer._storage.urlpath import user_path
from packer.errors import OptionError

__all__ = ["AnnotationRequest", "files_said"]


def files_said(said: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the files of annotations that a caller names, which may be one."""
    return list(map(user_path, [said] if isinstance(said, str | os.PathLike) else said))


@dataclass(frozen=True, kw_only=True)
class AnnotationRequest:
    """Which annotations are wanted. None stands for what was not said.

    Attributes
    ----------
    coco : sequence of Path
        Files of annotations in COCO's format, of the same images.
    masks : bool
        Whether the annotations of `coco` are drawn as masks.
    voc : Path, optional
        A directory in Pascal VOC's layout.
    yolo : Path, optional
        A ``data.yaml`` of YOLO's.
    split : str, optional
        Which split of `voc` or `yolo`.
    """

    coco: Sequence[Path] = ()
    masks: bool = False
    voc: Path | None = None
    yolo: Path | None = None
    split: str | None = None

    @property
    def annotations(self) -> str | None:
        """The name of the argument that names annotations; None where there is none."""
        return next((name for name in ("coco", "voc", "yolo") if getattr(self, name)), None)

    def refuse_annotations(self) -> None:
        """Raise OptionError where what is said of annotations contradicts itself, or decides nothing."""
        named = self.annotations
        if sum(bool(said) for said in (self.coco, self.voc, self.yolo)) > 1:
            raise OptionError("--coco, --voc and --yolo each say all annotations: say one of them")
        if self.masks and not self.coco:
            raise OptionError("--masks draws the annotations of --coco: say which with --coco")
        if self.split is not None and not (self.voc or self.yolo):
            raise OptionError("--split names a split of --voc or --yolo")
        names = ("labels", "classes_from")  # unlabeled is what such images are
        if named and (others := [name for name in names if getattr(self, name, None)]):
            option = others[0].replace("_", "-")
            raise OptionError(f"--{option} says labels, and images with --{named} have fields instead: leave out one")

    def annotated_source(
        self, src: Path, rule: ImageRule, on_missing: str | None, bad: BadSamples, *, unlabeled: bool
    ) -> Source:
        """List the images below `src` with their annotations; SourceError where that fails."""
        missing = "skip" if on_missing == "skip" else "error"  # null is for files of fields
        if self.coco:
            from packer._sources.coco import coco_source

            return coco_source(src, self.coco, masks=self.masks, on_missing=missing, rule=rule, bad=bad)
        if self.voc is not None:
            from packer._sources.voc import voc_source

            return voc_source(
                src, self.voc, split=self.split, on_missing=missing, rule=rule, bad=bad, unlabeled=unlabeled
            )
        assert self.yolo is not None
        from packer._sources.yolo import yolo_source

        return yolo_source(
            src, self.yolo, split=self.split, on_missing=missing, rule=rule, bad=bad, unlabeled=unlabeled
        )

    def described_annotations(self) -> dict[str, Any]:
        """Return what is asked for as JSON values."""
        paths = {name: path and os.path.abspath(path) for name, path in (("voc", self.voc), ("yolo", self.yolo))}
        files = [os.path.abspath(path) for path in self.coco] or None
        return {**paths, "coco": files, "masks": self.masks or None, "split": self.split}
