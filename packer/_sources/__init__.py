"""Sources of images: ordered lists of files, objects or samples to read, one kind in each module."""
