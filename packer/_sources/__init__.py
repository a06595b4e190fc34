"""Where images come from: an ordered list of what to read."""

from packer._sources.base import Source
from packer._sources.container import ContainerSource, container_source, listed_container, refuse_derived, require_whole
from packer._sources.hf_metadata import metadata_of, metadata_source
from packer._sources.imagefolder import (
    ImageRule,
    class_directories,
    imagefolder_source,
    refuse_splits,
    require_images_in_classes,
    split_directories,
    unlabeled_source,
)
from packer._sources.index import build_index
from packer._sources.labels import (
    account_for_classes,
    account_for_labels,
    notes_on_gray_files,
    with_given_classes,
    without_labels,
)
from packer._sources.objects import ObjectSource, prefix_source
from packer._sources.pack import CLASS_MAPS, pack_source
from packer._sources.scan_list import ListedSource, is_listing, let_mend, listed_source, write_listing
from packer._sources.sidecar_files import ON_MISSING, FileField, files_among, with_files
from packer._sources.stylegan import stylegan_source
from packer._sources.table_source import csv_source, url_table_source
from packer._sources.tables import ColumnSpec, TableOptions, default_delimiter

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
    "TableOptions",
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
