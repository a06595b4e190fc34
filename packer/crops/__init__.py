"""Crops: before an image is decoded, a crop chooses a rectangle, its size after resizing, and whether it is mirrored.

The classes have the names, arguments and meaning of torchvision's transforms. A crop depends only on random numbers and
on the image's height and width, which are in the pack's table. So packer chooses all crops of a batch together, and the
decoder can skip the pixels outside of the crops.
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
