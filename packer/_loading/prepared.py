"""What a dataset does to the images of its samples: settings, some of which may be changed between two passes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from packer._loading.folder import joint
from packer._loading.preparation import Preparation, Transform, preparation_of, require_callable
from packer._loading.selection import Selection
from packer.crops import Compose, Crop

__all__ = ["Prepared"]


class Prepared(Selection):
    """Samples of a pack, and the steps from each to an item."""

    _crop: Crop | None
    _output: str | None
    _fuse: bool
    _library: str
    _scaled: bool
    _transform: Transform
    _target_transform: Transform
    _transforms: Callable[[Any, Any], tuple[Any, Any]] | None

    @property
    def transform(self) -> Transform:
        """What is applied to each image; another transform may be set between two passes."""
        return self._transform

    @transform.setter
    def transform(self, transform: Transform) -> None:
        require_callable("transform", transform)
        self._transform = transform
        self.__dict__.pop("_preparation", None)

    @property
    def transforms(self) -> Any:
        """What is applied to image and label together: as given, or `transform` and `target_transform` joined."""
        return self._transforms or joint(self._transform, self.target_transform)

    @property
    def output(self) -> str:
        """The form of an image, which was said when the dataset was opened, or follows from the transform."""
        return self._preparation.output

    @property
    def target_transform(self) -> Transform:
        """What is applied to each label; another transform may be set between two passes."""
        return self._target_transform

    @target_transform.setter
    def target_transform(self, target_transform: Transform) -> None:
        require_callable("target_transform", target_transform)
        self._target_transform = target_transform
        self.__dict__.pop("_preparation", None)

    @property
    def decoder(self) -> str:
        """Which library decodes ordinary JPEGs, as the dataset was opened."""
        return self._library

    @property
    def scaled_decode(self) -> bool:
        """Whether the decoder may halve images, as the dataset was opened."""
        return self._scaled

    @property
    def crop(self) -> Crop | None:
        """Which part of each image is wanted; another crop may be set between two passes."""
        return self._crop

    @crop.setter
    def crop(self, crop: Crop | Sequence[Crop] | None) -> None:
        if isinstance(crop, (list, tuple)):
            crop = Compose(crop)
        if crop is not None and not isinstance(crop, Crop):
            raise TypeError(f"crop is one of packer's crops, such as packer.RandomResizedCrop(224), not {crop!r}")
        if crop is not None and self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no crop is made")
        self._crop = crop
        self.__dict__.pop("_preparation", None)

    @functools.cached_property
    def _preparation(self) -> Preparation:
        return self._planned(self._transform)

    @property
    def randoms(self) -> int:
        """How many random numbers the crop of an image needs."""
        return self._preparation.crop.randoms if self._preparation.crop is not None else 0

    def _in_place(self, transform: Transform) -> tuple[int, int] | None:
        """Return the size of images that can be decoded into their places in a batch; None where items are made."""
        preparation = self._prepared_with(transform)
        return preparation.crop.size if preparation.crop is not None and preparation.leaves_pixels else None

    def _prepared_with(self, transform: Transform) -> Preparation:
        """Return the steps of an image where a Loader's transform, if any, takes the place of the dataset's."""
        return self._preparation if transform is None else self._planned(transform)

    def _planned(self, transform: Transform) -> Preparation:
        joint = self._transforms if transform is self._transform else None
        return preparation_of(self._crop, self._output, transform, self.target_transform, joint, fuse=self._fuse)
