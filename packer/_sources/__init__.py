"""Where images come from: an ordered list of what to read."""

from packer._sources.base import Source
from packer._sources.csv import csv_source
from packer._sources.imagefolder import class_directories, imagefolder_source, refuse_splits, split_directories
from packer._sources.listing import ScannedSource, is_scan, let_mend, scanned_source, write_scan
from packer._sources.pack import pack_source

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
