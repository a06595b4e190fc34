"""Parquet and Arrow, as Hugging Face writes them."""
