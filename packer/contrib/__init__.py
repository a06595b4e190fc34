"""Rarely used containers and formats, with the same kind of descriptors as in other packages."""
