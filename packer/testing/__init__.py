"""What tests, the demonstration and benchmarks share: drawn photos, the reference ImageFolder, the formats' test suite."""
