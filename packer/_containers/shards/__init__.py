"""Shards whose tables say where each sample lies."""
