"""WebDataset's tars."""
