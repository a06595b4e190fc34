"""Crops, chosen before decoding: a rectangle of an image, its new size, and whether it is mirrored.

The rules have torchvision's names, arguments and meaning. The inputs of a rule are height and width of the image, from
the table of the pack, and random numbers. So all crops of a batch are chosen together, and the decoder can skip the
pixels outside them.
"""

from packer.crops._crop import Compose, Crop
from packer.crops._fuse import Split, split
from packer.crops._rules import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)

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
