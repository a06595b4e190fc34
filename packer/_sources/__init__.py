"""Where images come from: an ordered list of what to read."""
