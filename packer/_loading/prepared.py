"""What a dataset does to the images of its samples; some settings may be changed between two passes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from packer._images.geometry import CROP, Box
from packer._loading.decoding import BatchDecoder
from packer._loading.fields import FieldDecoder
from packer._loading.folder import joint, row_of
from packer._loading.forms import in_form, tensor_dtype
from packer._loading.memory import IMAGES, Layout, Part, view_part
from packer._loading.parts import Parts
from packer._loading.preparation import Preparation, Transform, preparation_of, require_callable
from packer._loading.readable import ItemsError
from packer._loading.selection import Selection
from packer.augment import Augmentation, View
from packer.augment._augmentation import chain_of
from packer.augment._places import interpolations
from packer.crops import Compose, Crop
from packer.crops._split import Snapshot

__all__ = ["Prepared"]


class Prepared(Selection):
    """Samples of a pack, and the steps from each to an item."""

    _crop: Crop | None
    _augment: Augmentation | None
    _views: tuple[View, ...] | None
    _output: str | None
    _fuse: bool
    _library: str
    _scaled: bool
    _transform: Transform
    _target_transform: Transform
    _transforms: Callable[..., Any] | None
    _parts: Parts | None
    _mode: str

    @property
    def transform(self) -> Transform:
        """What is applied to each image; another transform may be set between two passes."""
        return self._transform

    @transform.setter
    def transform(self, transform: Transform) -> None:
        require_callable("transform", transform)
        self._require_one_kind(transform)
        self._transform = transform
        self._forget_preparation()

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
        self._require_one_kind(target_transform)
        self._target_transform = target_transform
        self._forget_preparation()

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
            raise TypeError(
                f"crop is one of packer's crops, such as packer.RandomResizedCrop(224), not {crop!r}. To take "
                "the crop of a transform, say packer.crops.split(transform)[0], or transform= with fuse=True"
            )
        if crop is not None and self._fuse:
            raise ValueError("fuse=True takes the crop out of transform=, so it goes without crop=: say one of them")
        if crop is not None and self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no crop is made")
        self._require_no_views("crop", crop)
        self._crop = crop
        self._forget_preparation()

    @property
    def augment(self) -> Augmentation | None:
        """What is done to the pixels of each crop; another augmentation may be set between two passes."""
        return self._augment

    @augment.setter
    def augment(self, augment: Augmentation | Sequence[Augmentation] | None) -> None:
        self._require_no_views("augment", augment)
        self._augment = None if augment is None else self._usable(augment)
        self._forget_preparation()

    @property
    def views(self) -> tuple[View, ...] | None:
        """What is made of each image, where that are several images; others may be set between two passes."""
        return self._views

    @views.setter
    def views(self, views: Sequence[View] | None) -> None:
        self._views = None if views is None else self._usable_views(views)
        self._forget_preparation()

    def _require_no_views(self, name: str, value: object) -> None:
        if value is not None and self._views is not None:
            raise ValueError(f"each of views= has a crop and an augmentation of its own, so they go without {name}=")

    def _usable_views(self, views: Sequence[View]) -> tuple[View, ...]:
        """Return views of this dataset's images, or say why there can be none."""
        if not isinstance(views, (list, tuple)) or not views or not all(isinstance(view, View) for view in views):
            raise TypeError(
                f"views is a list of views, such as [packer.View(packer.RandomResizedCrop(224))] * 2, not {views!r}"
            )
        others = {"crop=": self._crop, "augment=": self._augment, "fuse=True": self._fuse or None}
        for name in (name for name, value in others.items() if value is not None):
            raise ValueError(f"each of views= has a crop and an augmentation of its own, so they go without {name}")
        if self._transforms is not None:
            raise ValueError("transforms= takes one image, and views= make several: transform= is applied to each view")
        if self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no views are made")
        if self._parts is not None and self._parts.cropped:
            fields = ", ".join(self._parts.cropped)
            raise ValueError(
                f"views= make several images of a sample, and {fields} would be that of one: leave it out of fields="
            )
        for view in views:
            if view.augment is not None:
                self._usable(view.augment)
            if self._parts is not None:
                self._parts.require_step(view.crop)
        return tuple(views)

    def _usable(self, augment: Augmentation | Sequence[Augmentation]) -> Augmentation:
        """Return an augmentation of this dataset's images, or say why there can be none."""
        chain = chain_of(augment)
        if self._output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, which are not augmented")
        if self._mode != "RGB":
            raise ValueError(f"augment= changes images in RGB, and goes without mode={self._mode!r}")
        others = self._parts.further_images if self._parts is not None else ()
        if others and "bilinear" in interpolations(chain):
            raise ValueError(
                f"augment= moves further images to the nearest pixel: with {', '.join(others)} say "
                "interpolation='nearest', or leave these out of fields="
            )
        return chain

    def read_region(self, index: int, top: int, left: int, height: int, width: int) -> Any:
        """Return a rectangle of an image, without a transform: exactly those pixels of the whole image.

        In a tiled JPEG only the tiles that the rectangle touches are decoded, so a small rectangle of a huge image is
        as cheap as a small image.

        Parameters
        ----------
        top, left, height, width : int
            In pixels; the rectangle lies inside of the image.

        Returns
        -------
        (C, height, width) tensor, (height, width, C) array or PIL image
            As `output` and `mode` say.

        Raises
        ------
        ValueError
            If the rectangle is empty or does not lie inside of the image.
        IndexError, CorruptPackError, ImageError
            As for ``dataset[index]``.
        """
        output = self.output
        if output == "bytes":
            raise ValueError("output='bytes' gives the stored bytes, of which no region is read")
        (row,) = self._rows_of([index]).tolist()
        top, left, height, width = map(operator.index, (top, left, height, width))
        full_height, full_width = int(self.reader.table.height[row]), int(self.reader.table.width[row])
        if not (height >= 1 <= width and 0 <= top <= full_height - height and 0 <= left <= full_width - width):
            raise ValueError(
                f"a rectangle of {width} x {height} pixels from ({left}, {top}) does not lie inside of sample {index}, "
                f"which has {full_width} x {full_height}"
            )
        box = Box.of((top, left, height, width), (height, width))
        (pixels,) = self._decoder.cut(np.array([row]), np.array([box], CROP))
        return in_form(output, pixels)

    def loader(self, path: str) -> Image.Image:
        """Return the image of the sample whose name is `path`, as ImageFolder's loader does: without a transform.

        Raises
        ------
        FileNotFoundError
            If no sample of the pack has the name.
        CorruptPackError, ImageError
            If the sample is damaged.
        """
        row = row_of(self.reader.names, path)
        image: Image.Image = in_form("pil", self._decoder.decode(row, self.reader.read(row)))
        return image

    @functools.cached_property
    def _decoder(self) -> BatchDecoder:
        return BatchDecoder(self.reader, self._library, self._scaled, self._mode)

    @functools.cached_property
    def _fields(self) -> FieldDecoder | None:
        return None if self._parts is None else FieldDecoder(self.reader, self._parts, self._library)

    @property
    def _preparation(self) -> Preparation:
        return self._prepared_as("_prepared", self._transform)

    @property
    def randoms(self) -> int:
        """How many random numbers the crop of an image needs, and its augmentation."""
        return self._preparation.randoms

    def _in_place(self, transform: Transform) -> Layout | None:
        """Return which pixels can be decoded into their places in a batch; None where items are made."""
        preparation = self._prepared_with(transform)
        sizes = [crop.size for crop in preparation.crops if crop.size is not None]
        fixed = sizes and len(sizes) == len(preparation.crops) and preparation.leaves_pixels
        if not fixed or (self._parts is not None and self._parts.is_target):
            return None
        wanted = self._parts is None or "image" in self._parts.names
        if wanted and self._mode != "RGB":
            return None
        views = [view_part(number, size) for number, size in enumerate(sizes)]
        images = (views if preparation.views else [Part(IMAGES, sizes[0], 3)]) if wanted else []
        parts = (*images, *(Part(name, sizes[0], 1, dtype) for name, dtype in self._mask_dtypes.items()))
        return Layout(parts) if parts else None

    def _in_batches(self) -> Layout:
        """Return the layout of batches of the items' images; ItemsError where each item is made by itself."""
        preparation = self._preparation
        if self._parts is not None:
            raise ItemsError("the items have fields")
        if preparation.lookup is not None and preparation.row_size is not None:
            images = Layout((Part(IMAGES, preparation.row_size, 3),))
            return images.with_numbers(preparation.lookup, beside=False)
        layout = self._in_place(None)
        if layout is None:
            hint = "" if self._fuse or self._transform is None else "; fuse=True lets packer do what it begins with"
            raise ItemsError(preparation.left + hint if self._mode == "RGB" else f"the images have mode={self._mode!r}")
        return layout

    @functools.cached_property
    def _mask_dtypes(self) -> dict[str, str]:
        if self._parts is None or self._fields is None:
            return {}
        return {name: tensor_dtype(self._fields.dtype_of(name)) for name in self._parts.masks}

    def _prepared_with(self, transform: Transform) -> Preparation:
        """Return the steps of an image where a Loader's transform, if any, takes the place of the dataset's."""
        if transform is None:
            return self._preparation
        return self._prepared_as("_other_preparation", transform)

    def _prepared_as(self, name: str, transform: Transform) -> Preparation:
        """Return the steps with a transform, made anew where people changed its settings in place."""
        known: tuple[Transform, Snapshot | None, Preparation] | None = self.__dict__.get(name)
        fused = self._transforms if transform is None and self._parts is not None else transform
        if known is None or known[0] is not transform or not (known[1] is None or known[1].holds(fused)):
            snapshot = Snapshot(fused) if self._fuse and fused is not None else None
            known = self.__dict__[name] = transform, snapshot, self._planned(transform)
        return known[2]

    def _require_one_kind(self, transform: Transform) -> None:
        """Raise ValueError where a transform of images or of labels goes beside one of both."""
        if transform is not None and self._transforms is not None:
            raise ValueError("transforms= takes image and label together: it goes without transform= and its like")

    def _forget_preparation(self) -> None:
        for made in ("_prepared", "_other_preparation"):
            self.__dict__.pop(made, None)

    def _planned(self, transform: Transform) -> Preparation:
        transforms = self._transforms if transform is self._transform else None
        made = preparation_of(
            self._crop,
            self._output,
            transform,
            self.target_transform,
            transforms,
            self._parts,
            self._augment,
            self._views or (),
            fuse=self._fuse,
        )
        if self._parts is not None and transform is not None and "image" not in self._parts.names:
            raise ValueError("transform= is applied to the image, which fields= does not name: say transforms=")
        if self._parts is not None and made.crop is not None:
            self._parts.require_step(made.crop)
        if self._parts is not None and made.augment is not None and interpolations(made.augment):
            self._parts.require_step(made.augment)
        return made
