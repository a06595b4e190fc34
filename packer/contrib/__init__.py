"""Rarely used containers and formats, registered through the same descriptors as those of other packages."""
