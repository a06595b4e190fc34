"""Crops, which are chosen before decoding: a rectangle of an image, its new size, and whether it is mirrored.

The rules have the names, arguments and meaning of torchvision's transforms. A rule depends only on random numbers and
on the height and width of the image, which are in the pack's table. So all crops of a batch are chosen together, and
the decoder can skip the pixels outside them.
"""

from packer.crops._crop import (
    CenterCrop,
    Compose,
    Crop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)
from packer.crops._fuse import Split, split

__all__ = [
    "CenterCrop",
    "Compose",
    "Crop",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ResizeCenterCrop",
    "Split",
    "split",
]
