"""Requests, which hold the options of a conversion or an index, check that they fit together, and open the source.

The command line and the functions of `packer` both make requests; `packer._conversion.options` declares the options.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from packer._account import Account, BadSamples
from packer._codecs import LOSSY, MAX_PIXELS
from packer._containers import find_container, named_paths, open_container, parse_keys
from packer._containers.dataset_json import DATASET_JSON
from packer._conversion.convert import (
    ConversionProgress,
    Summary,
    convert,
    require_format,
    require_parts,
)
from packer._conversion.options import (
    ImageOptions,
    OutputOptions,
    SourceOptions,
    options_of,
    recorded_as,
    require_choices,
    require_counts,
)
from packer._conversion.recipe import Recipe
from packer._conversion.workspace import check_destination, check_inputs, check_report
from packer._fields import KINDS, Condition
from packer._formats import FORMATS, Format, format_for, open_pack, recognise
from packer._images.resize import ResizeSpec
from packer._sources.base import Source
from packer._sources.imagefolder import (
    FilesOf,
    ImageRule,
    imagefolder_source,
    metadata_files,
    refuse_splits,
    unlabeled_source,
)
from packer._sources.labels import (
    account_for_classes,
    account_for_labels,
    with_given_classes,
    without_labels,
)
from packer._sources.objects import prefix_source, url_table_source
from packer._sources.pack import pack_source
from packer._sources.scan_list import is_listing, listed_source
from packer._sources.sidecar_files import FileField, files_among, notes_on_gray_files, with_files
from packer._sources.table_source import csv_source
from packer._sources.tables import ColumnSpec, TableOptions, default_delimiter
from packer._storage.place import place_of
from packer._storage.remote.urls import is_url, parse, redacted
from packer._storage.system import require_count
from packer.errors import (
    NotAPackError,
    OptionError,
    OptionTypeError,
    PackNotFoundError,
    SourceError,
    flag,
    option,
    printable,
)

_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_OF_A_DISK = ("fields", "coco", "voc", "yolo", "any_image", "keys", "no_metadata", "allow_empty", "on_missing")
"""Options that apply only to files on a disk."""

REMEDY_OF_CLASSES = "Correct these names, or convert the images of that pack again."
"""The end of messages about class names of a field that are missing in the pack `classes_from`."""


def is_table(src: Path) -> bool:
    """Tell whether `src` is the file of a table, whose rows may name images by URL."""
    return src.suffix.lower() in _TABLES and not is_url(src) and os.path.isfile(src)


def source_of_objects(request: SourceRequest, classes: Sequence[str] | None) -> Source | None:
    """List the images if the request is for images at URLs; return None if the request is for files on a disk.

    Raises
    ------
    OptionError
        If an option is set that applies only to files on a disk.
    SourceError
        If the images cannot be listed.
    """
    at_url = is_url(request.src)
    if not at_url and (request.labels is not None or not is_table(request.src)):
        return None
    if refused := next(request.given(_OF_A_DISK), None):
        raise OptionError(
            f"{request.mention(refused)} applies only to files on a disk, but {_printable_source(request.src)} is a "
            "URL or a table of URLs"
        )
    if request.in_place:
        raise OptionError(f"{_printable_source(request.src)}: objects at URLs cannot be indexed: convert them")
    if at_url and request.labels is None:
        if parse(request.src).scheme in ("http", "https"):
            raise SourceError(
                f"{redacted(request.src)}: an HTTP server does not list its files. Convert a table of URLs: `packer "
                "convert urls.csv DST`, with a column `url`"
            )
        return prefix_source(
            str(parse(request.src)),
            classes,
            request.rule,
            unlabeled=request.unlabeled or request.no_classes,
            bad=request.bad_samples(),
        )
    return url_table_source(
        str(parse(request.src)) if at_url else None,
        request.src if request.labels is None else request.labels,
        request.table_options(classes),
    )


def _printable_source(src: Path) -> str:
    return redacted(src) if is_url(src) else printable(src)


def refuse_of_container(src: Path, mention: str, error: SourceError | None = None) -> None:
    """Raise OptionError if `src` is a container although an option for directories is set.

    `mention` is the name of that option in messages; if it is empty, no such option is set, and nothing is checked.
    `error` is the reason why no image was found when packer read the container as a directory.
    """
    found = find_container(named_paths(src)) if mention else None
    if found is not None:
        what = f"{mention} applies only to a directory of images, but {printable(src)} is {found[0].kind}"
        more = "" if error is None else f" {error}"
        raise OptionError(f"{what}: leave it out, or describe the samples with --key.{more}") from error


_READING = ("path_column", "label_column", "delimiter", "label_type", "suffix")
"""Options for reading a table of labels."""

_OF_A_DIRECTORY = {
    **{"labels": "labels", "allow_empty": "classes"},
    **dict.fromkeys(("extensions", "any_image", "skip_hidden"), "images"),
    **dict.fromkeys(("fields", "columns", "coco", "voc", "yolo"), "fields"),
}
"""Maps each option that applies only to directories to what a listing or a pack contains instead."""

_OF_FILES = {
    **_OF_A_DIRECTORY,
    **dict.fromkeys(("no_classes", "unlabeled"), "labels"),
    **dict.fromkeys(("keys", "no_metadata", "on_missing"), "fields"),
}
"""Maps each option that applies neither to listings nor to packs to what a listing or a pack contains instead."""

_OPTIONS = dict(options_of(SourceOptions, ImageOptions, OutputOptions))

_NO_FIELDS = (
    f"{option('on_missing')} has no effect without fields: add them with {option('fields')} or {option('columns')}"
)


@dataclass(frozen=True, kw_only=True)
class SourceRequest(SourceOptions):
    """A source to be listed: its path and the options for its images.

    Raises
    ------
    OptionError
        If options do not fit together.
    TypeError, ValueError
        If an option has an invalid value.
    """

    in_place: ClassVar[bool] = False
    """Whether images stay in the files of the source, which therefore must not be compressed."""

    src: Path

    def __post_init__(self) -> None:
        require_counts(self)
        if self.limit and self.sample:
            raise OptionError(
                f"{option('limit')} takes the first images, {option('sample')} takes images from the whole list: pass "
                "only one of them"
            )
        for name in self.given((*_READING, "no_header")):
            if not self._names_table:
                raise OptionError(
                    f"{self.mention(name)} applies only to a table: pass the table with {option('labels')}"
                )
            if name != "no_header" and not isinstance(getattr(self, name), str):
                raise OptionTypeError(f"{name} must be text, not {getattr(self, name)!r}")
        require_choices(self, SourceOptions)
        if problem := next(itertools.chain(self._contradictions(), self._annotation_problems()), None):
            raise OptionError(problem)
        if self.where is not None:
            Condition(self.where)  # raises an error if it is invalid
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '\r\n"'):
            raise OptionError(f"delimiter must be one character, not {self.delimiter!r}")

    def given(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the options in `names` whose values differ from their defaults."""
        for name in names:
            value = getattr(self, name)
            if name in _READING:
                value = value is not None
            if value and (name, value) != ("on_missing", _OPTIONS["on_missing"].assumed):
                yield name

    def value_of(self, name: str) -> Any:
        """Return the value of an option, or the option's default if the value is None."""
        value = getattr(self, name)
        return _OPTIONS[name].assumed if value is None else value

    def mention(self, name: str) -> str:
        """Return the name of an option in messages. The name of a flag includes the flag's value."""
        return option(name, True if getattr(self, name) is True else None)

    @cached_property
    def rule(self) -> ImageRule:
        """The rule that decides which files count as images."""
        return ImageRule.of(self.extensions, self.any_image, self.skip_hidden)

    @cached_property
    def container_keys(self) -> dict[str, str]:
        """Maps image, label, name and fields to keys of a container; an invalid key raises OptionError."""
        texts = list(texts_of("keys", self.keys))
        return parse_keys(texts) if texts else {}

    @cached_property
    def file_fields(self) -> tuple[FileField, ...]:
        """The fields that are files next to the images; an invalid field raises OptionError."""
        return tuple(map(FileField.of, texts_of("fields", self.fields)))

    @cached_property
    def table_columns(self) -> tuple[ColumnSpec, ...]:
        """The fields that are columns of `labels`; an invalid column raises OptionError."""
        return tuple(map(ColumnSpec.of, texts_of("columns", self.columns)))

    def table_options(self, classes: Sequence[str] | None) -> TableOptions:
        """Return the options for reading the rows of `labels` or of a table of URLs."""
        return TableOptions(
            path_column=self.path_column,
            label_column=self.label_column,
            delimiter=self.delimiter,
            label_type=self.label_type,
            unlabeled=self.unlabeled,
            classes=classes,
            columns=self.table_columns,
            has_labels=not self.no_classes,
            suffix=self.suffix or "",
            has_header=not self.no_header,
            bad=self.bad_samples(),
        )

    def inputs(self) -> Iterator[Path]:
        """Yield the paths or URLs of the images, labels and annotations.

        The pack `classes_from` is left out, because the conversion may replace it with a newer pack that has the same
        classes.
        """
        yield from [self.src] if is_url(self.src) else named_paths(self.src)
        yield from filter(None, (self.labels, *self.coco, self.voc, self.yolo))

    @property
    def annotations(self) -> str | None:
        """The option for annotations that is set: ``coco``, ``voc`` or ``yolo``; None without annotations."""
        return next((name for name in ("coco", "voc", "yolo") if getattr(self, name)), None)

    @cached_property
    def _names_table(self) -> bool:
        """Whether a table names the images."""
        return self.labels is not None or is_table(self.src)

    def classes(self) -> list[str] | None:
        """Return the classes of the pack `classes_from`; None without such a pack, or if labels are not classes."""
        if self.classes_from is None or self.no_classes or self.label_type in ("int", "float"):
            return None
        with open_pack(self.classes_from) as reader:
            if reader.manifest.label_type != "class":
                raise OptionError(
                    f"{printable(self.classes_from)}: its labels are numbers, but {option('classes_from')} needs a "
                    "pack with classes"
                )
            return reader.manifest.classes

    def _contradictions(self) -> Iterator[str]:
        """Yield contradictions between options for labels or files, and options without effect."""
        rule, kinds = self.rule, [KINDS[spec.kind] for spec in self.table_columns]
        numbers = option("label_type", self.label_type) if self.label_type in ("int", "float") else None
        if numbers and self.unlabeled:
            yield (
                f"{option('unlabeled', True)} applies only to class ids: with {numbers}, no number can mean that "
                "there is no label"
            )
        none = numbers or (option("no_classes", True) if self.no_classes else None)
        none = none or (option("unlabeled", True) if self.unlabeled and self.labels is None else None)
        if self.classes_from is not None and none and not any(kind.has_classes for kind in kinds):
            yield f"{option('classes_from')} applies only to class ids: with {none} there are no classes"
        if self.no_classes and (self.label_type or self.label_column):
            others = f"{option('label_type')} and {option('label_column')}"
            yield f"{option('no_classes', True)} ignores all labels: leave out {others}"
        if kinds and not self._names_table:
            yield f"{option('columns')} applies only to a table: pass the table with {option('labels')}"
        if self.on_missing in ("null", "skip") and not self.annotations and not self.file_fields:
            if self._names_table and not any(kind.form == "pixels" for kind in kinds):
                yield _NO_FIELDS
            if not self._names_table and self.no_metadata:
                yield _NO_FIELDS
        if self.allow_empty and (self.labels or self.unlabeled or self.no_classes or self.annotations):
            yield (
                f"{option('allow_empty', True)} applies only if directories are classes, but with these options they "
                "are not"
            )
        if rule != ImageRule() and self._names_table:
            own = next(self.given(("any_image", "extensions", "skip_hidden")))
            table = f"the file of {option('labels')}" if self.labels is not None else printable(self.src)
            yield f"{self.mention(own)} applies only to directories: {table} names the images"

    def _annotation_problems(self) -> Iterator[str]:
        """Yield contradictions between options for annotations, and options without effect."""
        if not (self.annotations or self.masks or self.split is not None):
            return
        coco, voc, yolo, split = map(option, ("coco", "voc", "yolo", "split"))
        if sum(map(bool, (self.coco, self.voc, self.yolo))) > 1:
            yield f"{coco}, {voc} and {yolo} cannot be combined: pass only one of them"
        if self.masks and not self.coco:
            yield f"{option('masks', True)} draws the annotations of {coco}: pass {coco} too"
        if self.split is not None and not (self.voc or self.yolo):
            yield f"{split} applies only with {voc} or {yolo}"
        others = list(self.given(("labels", "classes_from")))  # `unlabeled` is allowed, because it changes nothing here
        if self.annotations and others:
            named = option(self.annotations)
            yield (
                f"{option(others[0])} and {named} cannot be combined, because images with {named} have fields instead "
                "of labels: leave out one of them"
            )
        if self.annotations and not self.file_fields:
            if self.on_missing == "null":
                yield _NO_FIELDS
            if self.on_missing == "skip" and not (self.coco or self.split):
                skip = option("on_missing", "skip")
                yield f"{skip} leaves out the missing images of a split: pass {split} too"

    @property
    def allows_empty(self) -> bool:
        """True if class directories may be empty even without `allow_empty`, as in requests that only list `src`."""
        return True

    def bad_samples(self) -> BadSamples:
        """Return a collector of unusable samples. Listing only collects them; the conversion skips them, or fails."""
        return BadSamples(skip=True)

    def open(self, destination: Path | None, classes: list[str] | None, *, is_split: bool = False) -> Source:
        """List the images.

        Parameters
        ----------
        destination : Path or None
            The destination of a conversion; None for other commands. If the subdirectories of `src` are splits, such as
            ``train``, the error names this destination.
        classes : list of str, optional
            Class names in the order of their ids, such as the result of `classes`.
        is_split : bool
            True if `src` is a split itself; it is then not searched for splits.

        Raises
        ------
        OptionError
            If the options do not fit the kind of source that `src` is.
        SourceError, PackError
            If `src` cannot be used.
        """
        source = self._opened(destination, classes, is_split)
        if self.classes_from is not None:
            with open_pack(self.classes_from) as reader:
                fields = reader.manifest.fields
            source = with_given_classes(
                source, fields, self.classes_from, self.bad_samples(), self.labels, remedy=REMEDY_OF_CLASSES
            )
        if self.file_fields:
            source = with_files(source, self.file_fields, self.value_of("on_missing"), skip=self.bad_samples().skip)
            source = source.noting(*notes_on_gray_files(source, texts_of("fields", self.fields)))
        if source.origin is None:  # otherwise the account is in the packs of the source
            account_for_labels(source, chosen=self.unlabeled or self.no_classes or bool(self.annotations))
            if classes is not None:
                account_for_classes(source, classes)
        self._require_no_losses(source)
        return selected(source, self.limit, self.sample)

    def require_strict_policy(self, on_error: str) -> None:
        """Raise OptionError if ``strict`` is combined with ``on_error="skip"``, which leaves out bad images."""
        if self.strict and on_error == "skip":
            raise OptionError(
                f"{option('on_error', 'skip')} leaves out bad images, but {option('strict', True)} forbids this: pass "
                "only one of them"
            )

    def _require_no_losses(self, source: Source) -> None:
        if not self.strict:
            return
        if source.account is None:
            raise SourceError(
                f"{printable(self.src)}: {option('strict', True)} cannot check this list, because an older packer "
                "wrote it without the files that were left out. Run `packer scan` again."
            )
        source.account.require_no_losses(str(self.src))

    def _opened(self, destination: Path | None, classes: list[str] | None, is_split: bool) -> Source:
        listed = is_listing(self.src)
        refused = next(self.given(_OF_FILES), None)
        if refused is not None and (listed or looks_like_pack(self.src)):
            own = f"which already determines the {_OF_FILES[refused]}"
            raise OptionError(f"{self.mention(refused)} cannot be used with {printable(self.src)}, {own}")
        if self.where is not None and (listed or not looks_like_pack(self.src)):
            raise OptionError(
                f"{option('where')} selects samples of a pack, but {printable(self.src)} is not a pack: convert it, "
                f"and then convert the pack with {option('where')}"
            )
        if listed:
            if classes is not None or self.classes_from is not None:
                raise OptionError(
                    f"{option('classes_from')} cannot change the list SRC: pass it to `packer scan`, which makes the "
                    "list"
                )
            return listed_source(self.src)
        if looks_like_pack(self.src):
            source = pack_source(self.src, classes=classes, bad=self.bad_samples())
            return source if self.where is None else source.where(self.where)
        if (objects := source_of_objects(self, classes)) is not None:
            return objects
        of_directories = next(map(self.mention, self.given(_OF_A_DIRECTORY)), "")
        if (container := self._of_container(of_directories, classes)) is not None:
            return container
        if self.annotations:
            return self._of_annotations()
        try:
            return self._of_directory(destination, classes, is_split)
        except SourceError as error:
            refuse_of_container(self.src, of_directories, error)
            raise

    def _of_container(self, of_directories: str, classes: list[str] | None) -> Source | None:
        """List a container's samples; None if `src` is no container, or if an option for directories is set.

        `of_directories` is the name of that option in messages; empty if no such option is set.
        """
        paths, keys, source = named_paths(self.src), self.container_keys, None
        if paths and not of_directories:
            refuse_of_container(self.src, next(map(self.mention, self.given(("no_metadata", "on_missing"))), ""))
            if (container := open_container(paths, keys)) is not None:
                from packer._sources.container import container_source

                source = container_source(
                    container,
                    classes,
                    directory=paths[0] if len(paths) == 1 and os.path.isdir(paths[0]) else None,
                    in_place=self.in_place,
                    unlabeled=self.unlabeled or self.no_classes,
                    bad=self.bad_samples(),
                )
        if source is None and keys and not paths:
            raise SourceError(f"{printable(self.src)}: no such file or directory")
        if source is None and keys:
            raise OptionError(
                f"--key applies only to containers, but {printable(self.src)} is not a container that packer reads"
            )
        return without_labels(source) if source is not None and self.no_classes else source

    def _of_annotations(self) -> Source:
        """List the images below `src` with their annotations; raise SourceError if that fails."""
        missing = "skip" if self.on_missing == "skip" else "error"  # "null" applies only to files of fields
        how: dict[str, Any] = {"on_missing": missing, "rule": self.rule, "bad": self.bad_samples()}
        if self.coco:
            from packer._sources.coco import coco_source

            return coco_source(self.src, self.coco, masks=self.masks, files_of=self._files_of, **how)
        how |= {"split": self.split, "unlabeled": self.unlabeled or self.no_classes}
        if self.voc is not None:
            from packer._sources.voc import voc_source

            return voc_source(self.src, self.voc, files_of=self._files_of, **how)
        assert self.yolo is not None
        from packer._sources.yolo import yolo_source

        return yolo_source(self.src, self.yolo, **how)

    @property
    def _files_of(self) -> FilesOf | None:
        return partial(files_among, self.src, self.file_fields) if self.file_fields else None

    def _of_directory(self, destination: Path | None, classes: list[str] | None, is_split: bool) -> Source:
        files_of = self._files_of
        if self.labels is not None:
            options = self.table_options(classes)
            return csv_source(self.src, self.labels, options, on_missing=self.value_of("on_missing"), files_of=files_of)
        no_classes = self.unlabeled or self.no_classes
        metadata = [] if self.no_metadata else metadata_files(self.src)
        if tables := [name for name in metadata if name != DATASET_JSON]:
            from packer._sources.metadata import metadata_of, metadata_source

            table = metadata_of(self.src, tables, self.bad_samples())
            if table is not None:
                return metadata_source(
                    self.src,
                    table,
                    self.rule,
                    classes,
                    has_classes=not no_classes,
                    on_missing=self.value_of("on_missing"),
                    files_of=files_of,
                    allow_empty=self.allow_empty or self.allows_empty,
                )
        if self.on_missing in ("null", "skip") and not self.file_fields:
            raise OptionError(_NO_FIELDS)
        if no_classes:
            return unlabeled_source(self.src, self.rule)
        if DATASET_JSON in metadata:
            from packer._sources.metadata import stylegan_source

            made = stylegan_source(self.src, classes, self.rule, self.bad_samples())
            if made is not None:
                return made
        if not is_split:
            self._refuse_splits(destination)
        return imagefolder_source(
            self.src,
            classes,
            self.rule,
            files_of,
            allow_empty=self.allow_empty or self.allows_empty,
            bad=self.bad_samples(),
        )

    def _refuse_splits(self, destination: Path | None) -> None:
        refuse_splits(self.src, destination)

    def described(self) -> dict[str, Any]:
        """Return the options as JSON values, for comparison with the options of other processes."""
        defaults = {name: _OPTIONS[name].assumed for name in ("path_column", "label_column")}
        defaults["delimiter"] = default_delimiter(self.labels)
        values = {
            word: self._recorded(name) or defaults.get(name)
            for name, declared in options_of(SourceOptions)
            if (word := recorded_as(name, declared))
        }
        return {**values, "src": redacted(src) if is_url(src := place_of(self.src).path) else src}

    def _recorded(self, name: str) -> Any:
        """Return the value of an option for a record; None or a false value if the option is not set."""
        value = getattr(self, name)
        if name in ("voc", "yolo"):
            return value and os.path.abspath(value)
        if name == "coco":
            return list(map(os.path.abspath, value)) or None
        if name in _SIGNS:
            return list(texts_of(name, value)) or None
        if name == "extensions":
            return None if value is None else ",".join(self.rule.extensions)
        return (value or None) if isinstance(value, bool) or value is None else str(value)


def selected(source: Source, limit: int | None, sample: int | None) -> Source:
    """Return the first `limit` images of a source, or `sample` images, with the others in its account."""
    count = limit or sample
    if not count or count >= len(source):
        return source
    chosen = source.limited(count) if limit else source.sampled(count)
    account = Account.united([source.account])
    if account is not None:
        why = f"{flag('limit' if limit else 'sample')} {count}"
        account.left_out("image", why, count=len(source) - count, chosen=True)
    return replace(chosen, account=account)


def looks_like_pack(path: Path) -> bool:
    """Tell whether the file or directory at `path` begins like a pack, and is not another tool's file.

    This is true for a damaged pack too, unlike `packer._formats.is_pack`, which opens the pack.
    """
    try:
        recognise(path)
    except (NotAPackError, PackNotFoundError):
        return False
    return not os.path.isfile(path) or find_container([path]) is None


_SIGNS = {"fields": "=", "columns": ":", "keys": "="}
"""Options that are mappings, with the sign between name and value on the command line."""


def texts_of(name: str, values: Sequence[str] | Mapping[str, str]) -> Iterator[str]:
    """Yield fields, columns or keys as the command line spells them; raise TypeError if they are invalid."""
    if isinstance(values, Mapping):
        values = [f"{key}{_SIGNS[name]}{value}" for key, value in values.items()]
    if isinstance(values, str) or not all(isinstance(text, str) for text in values):
        raise OptionTypeError(f"{name} must be a sequence of strings, or a mapping of names to strings, not {values!r}")
    yield from values


@dataclass(frozen=True, kw_only=True)
class ConversionRequest(OutputOptions, ImageOptions, SourceRequest):
    """A request to convert images to a pack; `packer.convert` explains each option."""

    dst: Path

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choices(self, OutputOptions)
        self.require_strict_policy(self.on_error)
        self._refuse_without_effect(self.recipe)
        format_options(self.format_row, self.shard_size)
        if self.parts:
            require_parts(self.format_row)
        if self.parts and self.report:
            raise OptionError(
                f"{option('report')} cannot be combined with {option('parts')}; `packer info --json` lists the files "
                "that were left out"
            )

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe that determines how samples are made from images."""
        resize = None
        if self.resize is not None:
            mode, interpolation = self.value_of("resize_mode"), self.value_of("interpolation")
            resize = ResizeSpec(self.resize, mode, self.upscale, interpolation)
        codec = self.codec or ("jpeg" if resize else "keep")
        return Recipe(
            codec=codec,
            resize=resize,
            quality=self.value_of("quality"),
            exif=self.exif,
            audit=self.audit,
            max_pixels=self.max_pixels or MAX_PIXELS,
            tiles=self.tiles if self.tiles or codec == "jpeg" else None,  # `tiles=False` has no effect on other codecs
            recode=self.recode,
            to_8_bit=self.to_8_bit,
        )

    @cached_property
    def format_row(self) -> Format:
        """The format of the pack; DestinationOptionError if neither `format` nor the suffix of `dst` names one."""
        advice = f"Change the name, or pass {option('format')}."
        name = redacted(self.dst) if is_url(self.dst) else self.dst
        return format_for(name, advice) if self.format is None else require_format(self.format)

    @property
    def format_options(self) -> dict[str, Any]:
        """The settings of the format; at present only ``shard_size``."""
        return format_options(self.format_row, self.shard_size)

    @property
    def allows_empty(self) -> bool:
        return self.parts is not None

    def bad_samples(self) -> BadSamples:
        return BadSamples(skip=self.on_error == "skip")

    def _refuse_splits(self, destination: Path | None) -> None:
        refuse_splits(self.src, destination, self.parts)

    def require_destination(self) -> None:
        """Raise DestinationError if the pack or the report cannot be written; called before the images are listed."""
        check_inputs(self.dst, self.inputs())
        check_destination(self.dst, overwrite=self.overwrite)
        if self.report is not None:
            inputs = (self.src, self.labels, self.classes_from, *self.coco, self.voc, self.yolo)
            check_report(self.report, [self.dst, *(path for path in inputs if path is not None)])

    def convert(
        self,
        source: Source,
        progress: Callable[[ConversionProgress], None] | None = None,
        samples: Iterable[Mapping[str, Any]] | None = None,
        *,
        allow_empty: bool = False,
    ) -> Summary:
        """Write the images that `open` listed, or `samples`, to one pack; see `packer._conversion.convert.convert`.

        Call `require_destination` first, before listing the images.
        """
        return convert(
            source,
            self.dst,
            recipe=self.recipe,
            format=self.format_row.name,
            options=self.format_options,
            on_error=self.on_error,
            workers=self.workers,
            overwrite=self.overwrite,
            fresh=self.fresh,
            ignore_free_space=self.ignore_free_space,
            report=self.report,
            allow_empty=allow_empty,
            progress=progress,
            samples=samples,
            checked=True,
        )

    def _refuse_without_effect(self, recipe: Recipe) -> None:
        """Raise OptionError if an option cannot have an effect; options that repeat the default are allowed."""
        kept = f"without {option('codec')} or {option('resize')}, packer stores the files' own bytes"
        why = kept if recipe.codec == "keep" else f"{option('codec', recipe.codec)} has no quality"
        if self.quality is not None and recipe.codec not in LOSSY:
            raise OptionError(f"{option('quality')} applies only to {' and '.join(LOSSY)}: {why}")
        resizing = next(map(self.mention, self.given(("interpolation", "resize_mode", "upscale"))), "")
        if recipe.resize is None and resizing:
            raise OptionError(f"{resizing} applies only if images are resized: pass the size with {option('resize')}")


def format_options(format: Format, shard_size: int | None) -> dict[str, Any]:
    """Return the settings of a format; raise OptionError if the format does not support one of them."""
    require_count("shard_size", shard_size)
    if shard_size is None:
        return {}
    if not format.shards:
        known = ", ".join(row.suffixes[0] for row in FORMATS.values() if row.shards)
        raise OptionError(f"{option('shard_size')} applies only to formats with several files: {known}")
    return {"shard_size": shard_size}
