"""Where images come from: an ordered list of what to read."""

from packer._sources.base import Source
from packer._sources.beside import ON_MISSING, FileField, files_among, with_files
from packer._sources.container import ContainerSource, container_source, listed_container, require_whole
from packer._sources.csv import csv_source
from packer._sources.derived import refuse_derived
from packer._sources.givenclasses import with_given_classes
from packer._sources.grayfiles import notes_on_gray_files
from packer._sources.imagefolder import (
    class_directories,
    imagefolder_source,
    refuse_splits,
    require_images_in_classes,
    split_directories,
)
from packer._sources.indexed import build_index
from packer._sources.labels import account_for_classes, account_for_labels, without_labels
from packer._sources.listing import ListedSource, is_listing, let_mend, listed_source, write_listing
from packer._sources.metadata import metadata_of, metadata_source
from packer._sources.objects import ObjectSource, prefix_source
from packer._sources.packs import CLASS_MAPS, pack_source
from packer._sources.stylegan import stylegan_source
from packer._sources.tablecolumns import ColumnSpec
from packer._sources.tables import default_delimiter
from packer._sources.unlabeled import unlabeled_source
from packer._sources.urltable import url_table_source
from packer._sources.walking import ImageRule

__all__ = [
    "CLASS_MAPS",
    "ON_MISSING",
    "ColumnSpec",
    "ContainerSource",
    "FileField",
    "ImageRule",
    "ListedSource",
    "ObjectSource",
    "Source",
    "account_for_classes",
    "account_for_labels",
    "build_index",
    "class_directories",
    "container_source",
    "csv_source",
    "default_delimiter",
    "files_among",
    "imagefolder_source",
    "is_listing",
    "let_mend",
    "listed_container",
    "listed_source",
    "metadata_of",
    "metadata_source",
    "notes_on_gray_files",
    "pack_source",
    "prefix_source",
    "refuse_derived",
    "refuse_splits",
    "require_images_in_classes",
    "require_whole",
    "split_directories",
    "stylegan_source",
    "unlabeled_source",
    "url_table_source",
    "with_files",
    "with_given_classes",
    "without_labels",
    "write_listing",
]
