"""Synthetic photos and packs, torchvision's ImageFolder, and the conformance suite for formats and containers."""
