"""What tests, demonstration and benchmarks share: drawn photos, the reference, the test suite of a format."""
