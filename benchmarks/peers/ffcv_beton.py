"""FFCV 1.0.2 (https://github.com/libffcv/ffcv)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, recipes, samples

REQUIRES = ("ffcv",)
NOTE = "Loader(os_cache=True), NHWC memory; threads of numba; anti-aliased (cv::INTER_AREA); DCT of lower precision"


def prepare(tree: Path, directory: Path, store: str = "bytes") -> Path:
    """Write a beton: the files' own `bytes`, or FFCV's own encoding of their pixels, `jpg` (of quality 90) or `raw`.

    `recipe` is the file that FFCV's ImageNet recipe trains ResNet-50 on: half of the images as JPEGs of quality 90 and
    half raw, resized where a side is longer than 500 pixels.
    """
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    beton = directory / "data.beton"
    if store == "recipe":
        field = RGBImageField("proportion", max_resolution=500, compress_probability=0.5, jpeg_quality=90)
    else:
        field = _stored_jpeg() if store == "bytes" else RGBImageField(write_mode=store)
    DatasetWriter(str(beton), {"image": field, "label": IntField()}, num_workers=1).from_indexed_dataset(
        _Images(samples(tree), store == "bytes")
    )
    return beton


def open_loader(pack: Path, crop: str, threads: int, recipe: str | None = None) -> Any:
    """Open a beton. A recipe is replaced by FFCV's nearest operations: see `_recipe`."""
    from ffcv.fields import RGBImageField
    from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage

    size = OUTPUT, OUTPUT
    images, labels = _recipe(recipe)
    if crop == "train":
        decode = [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip()]
    else:
        decode = [CenterCropRGBImageDecoder(size, OUTPUT / RESIZE)]
    return Loader(
        str(pack),
        batch_size=BATCH,
        num_workers=threads,
        os_cache=True,
        order=OrderOption.RANDOM if crop == "train" else OrderOption.SEQUENTIAL,
        drop_last=False,
        pipelines={
            "image": [*decode, *images, ToTensor(), ToTorchImage()],
            "label": [IntDecoder(), *labels[:1], ToTensor(), *labels[1:]],
        },
        custom_fields={"image": RGBImageField},
    )


def _recipe(recipe: str | None) -> tuple[list[Any], list[Any]]:
    """Return the operations on images and on labels.

    FFCV has three of TrivialAugmentWide's and RandAugment's operations: brightness, contrast and saturation. These
    stand for all. FFCV erases squares of one size, in all images. It has MixUp, and no CutMix.
    """
    import numpy as np
    from ffcv.transforms import (
        Cutout,
        ImageMixup,
        LabelMixup,
        MixupToOneHot,
        NormalizeImage,
        RandomBrightness,
        RandomContrast,
        RandomSaturation,
    )

    mean, std = 255 * np.array(recipes.MEAN), 255 * np.array(recipes.STD)
    normalize = NormalizeImage(mean, std, np.float32)
    if recipe == "trivial":
        colours = [kind(0.99, 1 / 3) for kind in (RandomBrightness, RandomContrast, RandomSaturation)]
        return [*colours, Cutout(OUTPUT // 4, recipes.ERASED), normalize], []
    if recipe == "rand":
        colours = [kind(0.27, 2 / 3) for kind in (RandomBrightness, RandomContrast, RandomSaturation)]
        mixed = [LabelMixup(recipes.MIXUP, same_lambda=True), MixupToOneHot(recipes.CLASSES)]
        return [*colours, ImageMixup(recipes.MIXUP, same_lambda=True), normalize], mixed
    return [], []


class _Images:
    def __init__(self, files: list[tuple[Path, int]], encoded: bool) -> None:
        self.files = files
        self.encoded = encoded

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        path, label = self.files[index]
        return (path.read_bytes(), label) if self.encoded else (Image.open(path).convert("RGB"), label)


def _stored_jpeg() -> Any:
    """Return a field that stores JPEG files as they are; FFCV's own field would encode their pixels again.

    So all sides decode the same bytes. FFCV encodes other types of images, and JPEGs that libjpeg cannot turn into RGB.
    """
    import io

    import numpy as np
    from ffcv.fields import RGBImageField
    from PIL import Image

    class StoredJPEG(RGBImageField):  # type: ignore[misc]
        def encode(self, destination: Any, image: bytes, malloc: Any) -> None:
            opened = Image.open(io.BytesIO(image))
            if opened.format != "JPEG" or opened.mode not in ("RGB", "L"):
                super().encode(destination, opened.convert("RGB"), malloc)
                return
            destination["mode"] = 0  # ffcv.fields.rgb_image.IMAGE_MODES["jpg"]
            destination["width"], destination["height"] = opened.size
            destination["data_ptr"], storage = malloc(len(image))
            storage[:] = np.frombuffer(image, np.uint8)

    return StoredJPEG(write_mode="jpg")
