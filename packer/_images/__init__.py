"""Decoding, resizing, augmenting and encoding images; independent of formats and packs."""
