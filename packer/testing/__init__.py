"""Drawn photos and packs, torchvision's ImageFolder, and the conformance suite of formats and containers."""
