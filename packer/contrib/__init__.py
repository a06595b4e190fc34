"""Rarely used containers and formats, which are registered by descriptors like those of other packages."""
