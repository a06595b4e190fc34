"""C converts levels to torchvision's normalised numbers, also with mixing and to other dtypes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st

from packer._images.extension import _native
from packer._images.numbers import TYPES, Mixture, NumberFormat, NumberWriter
from packer.augment._mixup import mixed_images

pytest.importorskip("packer.testing.reference").torchvision()
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler at the installation")

Three = tuple[float, ...]
USUAL = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def empty(pixels: torch.Tensor, numbers: NumberFormat) -> torch.Tensor:
    layout = torch.contiguous_format if numbers.planes else torch.channels_last
    return torch.empty(pixels.shape, dtype=getattr(torch, numbers.dtype), memory_format=layout)


def batch(count: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count + 10 * height + 1000 * width)
    levels = torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8, generator=generator)
    return levels.permute(0, 3, 1, 2)


def in_float32(*numbers: Three) -> tuple[Three, ...]:
    return tuple(tuple(torch.tensor(three, dtype=torch.float32).tolist()) for three in numbers)


@st.composite
def mixtures(draw: st.DrawFn, height: int, width: int) -> Mixture | None:
    kind = draw(st.sampled_from(["none", "blended", "pasted"]))
    if kind == "none":
        return None
    top, bottom = sorted(draw(st.tuples(*[st.integers(0, height)] * 2)))
    left, right = sorted(draw(st.tuples(*[st.integers(0, width)] * 2)))
    return Mixture(draw(st.floats(0, 1)), None if kind == "blended" else (top, left, bottom, right))


three = st.tuples(*[st.floats(-1, 1)] * 3)
deviations = st.tuples(*[st.floats(1e-9, 1e6)] * 3)  # float16 becomes infinite, and 0


@given(data=st.data(), count=st.integers(1, 4), height=st.integers(1, 40), width=st.integers(1, 40))
def test_the_numbers_are_torchvisions(data: st.DataObject, count: int, height: int, width: int) -> None:
    """float32 numbers are equal to the bit; numbers of other dtypes are these, rounded once."""
    pixels, mixture = batch(count, height, width), data.draw(mixtures(height, width))
    constants = in_float32(data.draw(three), data.draw(deviations))
    numbers = NumberFormat(constants, data.draw(st.sampled_from(TYPES)), data.draw(st.booleans()))  # type: ignore[arg-type]
    expected = F.normalize(F.to_dtype(pixels, torch.float32, scale=True), *map(list, constants))
    if mixture is not None:
        expected = mixed_images(expected, mixture)
    made = empty(pixels, numbers)
    NumberWriter(numbers, pixels, made, mixture).write(slice(None))
    assert torch.equal(made, expected.to(made.dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_no_number_stays_none(dtype: str) -> None:
    """Infinity blended with minus infinity is NaN."""
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 4, 70)
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    numbers = NumberFormat(in_float32((0.5,) * 3, (1e-45,) * 3), dtype)  # type: ignore[arg-type]
    made = empty(pixels, numbers)
    NumberWriter(numbers, pixels, made, Mixture(0.5)).write(slice(None))
    assert made.isnan().all()


@pytest.mark.parametrize("dtype", TYPES)
def test_levels_that_are_not_normalised_are_converted(dtype: str) -> None:
    pixels = batch(2, 30, 70)
    made = empty(pixels, NumberFormat(None, dtype))
    NumberWriter(NumberFormat(None, dtype), pixels, made).write(slice(None))
    assert torch.equal(made, pixels.to(made.dtype))


@pytest.mark.parametrize("std", [USUAL[1], (1.9999999, 3e-39, 1e-45), (1.9999999, 0.33333334, 7e30)])
@pytest.mark.parametrize("mixture", [None, Mixture(0.3), Mixture(0.5, (2, 3, 90, 80))])
@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_many_images_are_those_of_few(std: Three, mixture: Mixture | None, first: int) -> None:
    """So many numbers bypass the caches, from the first pixel on that begins a cache line."""
    pixels, constants = batch(5, 211, 223), in_float32(USUAL[0], std)
    numbers = NumberFormat(constants, "float32")  # type: ignore[arg-type]
    expected = F.normalize(F.to_dtype(pixels, torch.float32, scale=True), *map(list, constants))
    expected = expected if mixture is None else mixed_images(expected, mixture)
    memory = torch.empty(3 * 5 * 211 * 223 + first)[first:].view(5, 211, 223, 3).permute(0, 3, 1, 2)
    NumberWriter(numbers, pixels, memory, mixture).write(slice(None))
    assert torch.equal(memory.nan_to_num(5), expected.nan_to_num(5))


@pytest.mark.parametrize("mixture", [None, Mixture(0.3), Mixture(0.5, (2, 3, 9, 8))])
def test_a_part_of_a_batch_is_written_alone(mixture: Mixture | None) -> None:
    pixels, numbers = batch(5, 11, 13), NumberFormat(in_float32(*USUAL), "float32")  # type: ignore[arg-type]
    whole, parts = empty(pixels, numbers), empty(pixels, numbers).fill_(-9)
    NumberWriter(numbers, pixels, whole, mixture).write(slice(None))
    NumberWriter(numbers, pixels, parts, mixture).write(slice(1, 3))
    assert torch.equal(parts[1:3], whole[1:3])
    assert (parts[[0, 3, 4]] == -9).all()
    NumberWriter(numbers, pixels, parts, mixture).write(slice(3, 99))
    NumberWriter(numbers, pixels, parts, mixture).write(slice(0, 1))
    assert torch.equal(parts, whole)


def test_what_does_not_fit_is_refused() -> None:
    pixels, numbers = batch(2, 8, 8), NumberFormat(None, "float32")
    made = empty(pixels, numbers)
    for wrong in (made.half(), made[:1], made.contiguous(), made[..., :4]):
        with pytest.raises(ValueError, match="cannot be written"):
            NumberWriter(numbers, pixels, wrong).write(slice(None))
    with pytest.raises(ValueError, match="cannot be written"):
        NumberWriter(numbers, pixels.contiguous(), made).write(slice(None))
    for box in ((0, 0, 9, 1), (-1, 0, 1, 1), (3, 0, 2, 1), (0, 5, 1, 9)):
        with pytest.raises(ValueError, match="does not lie inside"):
            NumberWriter(numbers, pixels, made, Mixture(0.5, box)).write(slice(None))
