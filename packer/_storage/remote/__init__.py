"""Remote objects, read by ranges: S3, Google Cloud Storage, Azure, and servers of HTTP."""
