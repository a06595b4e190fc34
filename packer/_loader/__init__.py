"""Batches of datasets: the Loader, packer's DataLoader, and the threads and processes that make batches."""
