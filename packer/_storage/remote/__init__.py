"""Objects that are kept elsewhere and read by ranges: S3, Google Cloud Storage, Azure, and servers of HTTP."""
