"""Rarely used containers and formats, registered by descriptors as those of other packages are."""
