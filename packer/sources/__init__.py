"""Where images come from: an ordered list of what to read."""

from packer.sources.base import Source
from packer.sources.csv import csv_source
from packer.sources.imagefolder import class_directories, imagefolder_source, refuse_splits, split_directories
from packer.sources.pack import pack_source
from packer.sources.scan import ScannedSource, is_scan, let_mend, scanned_source, write_scan

__all__ = [
    "ScannedSource",
    "Source",
    "class_directories",
    "csv_source",
    "imagefolder_source",
    "is_scan",
    "let_mend",
    "pack_source",
    "refuse_splits",
    "scanned_source",
    "split_directories",
    "write_scan",
]
