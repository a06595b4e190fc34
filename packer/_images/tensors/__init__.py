"""The operations of augmentation on batches of tensors, on any device: see packer.augment.

They are for batches that lie on a GPU, and for where packer's C was not compiled.
"""

from packer._images.tensors.operating import operate

__all__ = ["operate"]
