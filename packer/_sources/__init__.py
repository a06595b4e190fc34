"""Sources of images: ordered lists of what to read, a module each."""
