"""What a Loader hands out, of a batch whose tasks are done."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from torch.utils.data import default_collate

from packer._loading.collation import Collation
from packer._loading.memory import Layout, pinned
from packer._loading.mixing import refuse_mixing, require_mixable, with_mixed_labels
from packer._loading.normalizing import Normalizer, Unfinished, images_of
from packer._loading.parts import Parts
from packer._loading.planning import Batch, Collate, awaited, finished
from packer._loading.preparation import Transform
from packer._loading.readable import Readable
from packer._loading.threads import Workers
from packer.augment import Mixing

__all__ = ["Finishing"]


class Finishing(NamedTuple):
    """How batches are finished.

    Attributes
    ----------
    collate, fields : callable, Collation or None
        As `packer._loading.planning.finished` takes them.
    normalizer : Normalizer
    pins : bool
        Whether what threads wrote is page-locked.
    elsewhere : bool
        Whether images become numbers on another device.
    augments : bool
        Whether they are augmented there, too.
    """

    collate: Collate
    fields: Collation | None
    normalizer: Normalizer
    pins: bool
    elsewhere: bool
    augments: bool = False

    def layout(self, images: Readable, transform: Transform, of_batches: object, mix: Mixing | None) -> Layout | None:
        """Return the layout of batches whose images are decoded in their places; None where items are collated.

        Raises
        ------
        TypeError, ValueError
            If there is a transform of batches, or batches are augmented on a device, and nothing is decoded in its
            place; or batches cannot be mixed.
        """
        require_mixable(mix, images._parts, images.views)
        refuse_mixing(of_batches)
        layout = images._in_place(transform) if self.collate is default_collate else None
        if self.augments and (layout is None or images._parts is not None or of_batches is not None):
            raise ValueError(
                'augment_on="device" is for images that are decoded into their batch: give the dataset a crop= of a '
                "fixed size or views=, and neither fields= nor transform= nor batch_transform= nor collate_fn="
            )
        if of_batches is not None and (layout is None or not layout.with_images or layout.views):
            raise ValueError(
                "batch_transform is for RGB images that are decoded into their batch: give the dataset a crop= of a "
                "fixed size, and neither transform= nor collate_fn= nor views= nor another mode="
            )
        if layout is None or not layout.with_images:
            return layout
        self.normalizer.require_channels(3)
        if mix is not None and mix.makes_fractions and not self.normalizer.makes_fractions:
            raise ValueError(f"{mix!r} makes fractions of pixels: say normalize= or dtype=torch.float32")
        numbers = None if self.elsewhere else self.normalizer.numbers
        if numbers is None or _has_other_images(images._parts):
            return layout
        return layout.with_numbers(numbers, beside=mix is not None or of_batches is not None)

    def oldest(self, images: Readable, workers: Workers, pending: deque[Batch]) -> Any:
        """Wait for the first of the batches in work, and return it; it is pending until all of its tasks have ended."""
        batch, results = awaited(images, workers, pending[0])
        pending.popleft()
        return self._batch(images, workers, batch, results)

    def _batch(self, images: Readable, workers: Workers, batch: Batch, results: list[Any]) -> Any:
        """Return a batch; its images wait for the device where they are normalised and mixed there."""
        layout = batch.how.layout
        if batch.memory is not None and layout is not None:
            memory = workers.hand_out(layout.handed_out(batch.memory))
            batch.memory = pinned(memory) if self.pins else memory
        else:
            workers.warn_of_draws()
        made = finished(images, batch, results, self.collate, self.fields)
        mixture = batch.ending.mixture
        if batch.how.mix is not None:
            if mixture is None:  # of items, whose size nobody knew before
                height, width = images_of(made).shape[-2:]
                mixture = batch.how.mixtures(batch.indices[:1], (height, width))[0]
            made = with_mixed_labels(made, mixture)
        if batch.memory is not None and layout is not None and layout.numbers is not None:
            return made
        if mixture is not None or batch.ending.operations is not None:
            made = Unfinished(made, mixture, batch.ending.operations)
            return made if self.elsewhere else self.normalizer(made)
        if self.elsewhere or (batch.memory is not None and self.normalizer.changes_nothing):
            return made
        return self.normalizer(made)


def _has_other_images(parts: Parts | None) -> bool:
    """Tell whether items have fields of pixels that become numbers, too."""
    if parts is None:
        return False
    return any(parts.fields[name].kind in ("image", "array") for name in parts.names if name in parts.fields)
