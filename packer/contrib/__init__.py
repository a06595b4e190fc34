"""Containers and formats that few people use, behind the same descriptors as those of other packages."""
