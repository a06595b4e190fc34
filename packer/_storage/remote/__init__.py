"""Remote objects, read in ranges: S3, Google Cloud Storage, Azure, and HTTP servers."""
