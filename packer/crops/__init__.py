"""Crops, chosen before decoding: a rectangle of an image, its size in the result, mirrored or not.

The rules have torchvision's names, arguments and meaning. A rule sees an image's height and width, which the pack's
table knows, and random numbers. So a batch's crops are chosen in one go, and the decoder can leave out what they do not
touch.
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
