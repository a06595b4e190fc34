"""Arrays of pixels."""
