"""Operations on a batch of tensors change each image as torchvision's v2 functional does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from packer._images.operations import FILTERS, KINDS, NO_FILL, Operations, nothing
from packer._images.torch_ops import operate

pytest.importorskip("packer.testing.reference").torchvision()
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812
from torchvision.transforms.v2.functional._geometry import _get_inverse_affine_matrix  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[needs_cuda, pytest.mark.cuda])]
MAGENTA = 200 + 65536 * 90


Torchvisions = Callable[[torch.Tensor], torch.Tensor]

WITHOUT_FACTOR: dict[str, Torchvisions] = {
    "nothing": torch.clone,
    "grayscale": lambda image: F.rgb_to_grayscale(image, 3),
    "equalize": F.equalize,
    "autocontrast": F.autocontrast,
    "invert": F.invert,
}
WITH_FACTOR: dict[str, tuple[Callable[..., torch.Tensor], st.SearchStrategy[float]]] = {
    "brightness": (F.adjust_brightness, st.floats(0, 3)),
    "contrast": (F.adjust_contrast, st.floats(0, 3)),
    "saturation": (F.adjust_saturation, st.floats(0, 3)),
    "sharpness": (F.adjust_sharpness, st.floats(0, 3)),
    "hue": (F.adjust_hue, st.floats(-0.5, 0.5)),
    "solarize": (F.solarize, st.floats(0, 255)),
    "posterize": (F.posterize, st.integers(0, 8)),
}


@st.composite
def steps(draw: st.DrawFn, height: int, width: int) -> tuple[npt.NDArray[Any], Torchvisions]:
    """Draw an operation, and the same operation of torchvision."""
    kind = draw(st.sampled_from(KINDS))
    made = nothing(1, 1)[0, 0]
    made["kind"], made["fill"] = KINDS.index(kind), draw(st.sampled_from([NO_FILL, 0, MAGENTA]))
    if kind in WITHOUT_FACTOR:
        return made, WITHOUT_FACTOR[kind]
    if kind in WITH_FACTOR:
        function, factors = WITH_FACTOR[kind]
        factor = made["factor"] = draw(factors)
        return made, lambda image: function(image, factor)
    of_places = {"blur": blurring, "erase": erasing, "affine": moving}
    return made, of_places[kind](draw, made, (height, width))


def blurring(draw: st.DrawFn, made: Any, size: tuple[int, int]) -> Torchvisions:
    sigma = made["factor"] = draw(st.floats(0.1, 3))
    wide, tall = made["width"], made["height"] = draw(st.sampled_from([(3, 3), (1, 5), (9, 7)]))
    return lambda image: F.gaussian_blur(image, [wide, tall], [sigma, sigma])


def erasing(draw: st.DrawFn, made: Any, size: tuple[int, int]) -> Torchvisions:
    top, left = made["top"], made["left"] = draw(st.integers(0, size[0] - 1)), draw(st.integers(0, size[1] - 1))
    tall, wide = draw(st.integers(0, size[0] - top)), draw(st.integers(0, size[1] - left))
    made["height"], made["width"] = tall, wide
    value = torch.tensor(colour_of(made) or [0.0] * 3, dtype=torch.uint8)[:, None, None]
    return lambda image: F.erase(image, top, left, tall, wide, value)


def moving(draw: st.DrawFn, made: Any, size: tuple[int, int]) -> Torchvisions:
    angle, scale = draw(st.floats(-180, 180)), draw(st.floats(0.5, 2))
    shift, shear = [draw(st.integers(-9, 9)) for _ in "xy"], [draw(st.floats(-40, 40)) for _ in "xy"]
    made["matrix"] = _get_inverse_affine_matrix([0.0, 0.0], angle, [*map(float, shift)], scale, shear)
    made["interpolation"] = draw(st.integers(0, len(FILTERS) - 1))
    name, colour = FILTERS[made["interpolation"]], colour_of(made)
    return lambda image: F.affine(image, angle, shift, scale, shear, interpolation=name, fill=colour)


def colour_of(made: Any) -> list[float] | None:
    return None if made["fill"] == NO_FILL else [float(made["fill"] & 255), 0.0, float(made["fill"] >> 16)]


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_each_image_of_a_batch_gets_torchvisions_pixels_or_levels_beside_them(
    device: str, data: st.DataObject, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    count, (height, width) = data.draw(st.integers(1, 5)), data.draw(st.tuples(st.integers(9, 40), st.integers(9, 40)))
    low = data.draw(st.integers(0, 255))
    pixels = torch.from_numpy(generator.integers(low, 256, (count, height, width, 3), np.uint8)).permute(0, 3, 1, 2)
    drawn = [data.draw(steps(height, width)) for _ in range(count)]
    images = pixels.clone().to(device)
    operate(images, np.array([[record] for record, _ in drawn]))
    for image, before, (record, torchvisions) in zip(images.cpu(), pixels, drawn, strict=True):
        apart = (image.int() - torchvisions(before).int()).abs()
        assert int(apart.max()) <= 1, KINDS[record["kind"]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("scale", "shift"), [(0.5, [0, 0]), (0.5, [3, 5]), (1.5, [3, 5]), (2.0, [3, 5]), (1.0, [0, 0])]
)
def test_places_halfway_between_two_pixels_go_where_torchvisions_go(
    device: str, scale: float, shift: list[int]
) -> None:
    """Rounding alone decides there, and all positions of an image may be halfway."""
    for height, width in [(24, 24), (30, 36), (9, 40), (26, 38), (33, 27)]:
        generator = np.random.default_rng(height)
        pixels = torch.from_numpy(generator.integers(0, 256, (1, height, width, 3), np.uint8)).permute(0, 3, 1, 2)
        for angle in (0.0, 45.0, 90.0, 180.0):
            operations = nothing(1, 1)
            operations["kind"], operations["fill"] = KINDS.index("affine"), MAGENTA
            operations["interpolation"] = FILTERS.index("nearest")
            operations["matrix"][...] = _get_inverse_affine_matrix(
                [0.0, 0.0], angle, [*map(float, shift)], scale, [0, 0]
            )
            colour = [200.0, 0.0, 90.0]
            expected = F.affine(pixels[0], angle, shift, scale, [0.0, 0.0], F.InterpolationMode.NEAREST, colour)
            assert torch.equal(operated(pixels.to(device), operations)[0].cpu(), expected), (height, width, angle)


@pytest.fixture
def coarse_products() -> Iterator[None]:
    """Allow matrix products and convolutions the lowest precision, as training programs do."""
    before, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.set_float32_matmul_precision(before)
    torch.backends.cudnn.allow_tf32 = convolutions


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.usefixtures("coarse_products")
def test_arithmetic_that_the_network_may_do_coarsely_moves_no_pixel(device: str) -> None:
    generator = np.random.default_rng(0)
    levels = torch.from_numpy(generator.integers(0, 256, (8, 224, 224, 3), np.uint8)).permute(0, 3, 1, 2)
    operations = nothing(8, 1)
    operations["kind"][:, 0] = [KINDS.index(kind) for kind in ("affine", "sharpness", "blur", "contrast")] * 2
    operations["factor"], operations["width"], operations["height"] = 1.7, 9, 7
    operations["matrix"][..., :] = _get_inverse_affine_matrix([0.0, 0.0], 20.0, [3.0, 5.0], 1.1, [4.0, 2.0])
    operations["interpolation"], operations["fill"] = FILTERS.index("bilinear"), MAGENTA
    expected = operated(levels, operations)
    with torch.autocast(device, torch.bfloat16):
        made = operated(levels.to(device), operations).cpu()
    assert int((made.int() - expected.int()).abs().max()) <= (0 if device == "cpu" else 1)


def operated(levels: torch.Tensor, operations: Operations) -> torch.Tensor:
    """Return images after their operations, in the memory layout of a Loader."""
    images = levels.clone(memory_format=torch.channels_last)
    operate(images, operations)
    return images


def of_every_kind(count: int) -> Operations:
    """Return operations: each kind for `count` images, with and without a fill, with each filter."""
    operations = nothing(count * len(KINDS), 1)
    each = operations[:, 0]
    each["kind"], each["factor"] = np.arange(len(each)) % len(KINDS), 0.4
    each["matrix"] = _get_inverse_affine_matrix([0.0, 0.0], 20.0, [3.0, 5.0], 1.1, [4.0, 2.0])
    choices = itertools.cycle(itertools.product(range(len(FILTERS)), (NO_FILL, MAGENTA)))
    each["interpolation"], each["fill"] = zip(*itertools.islice(choices, len(each)), strict=True)
    each["top"], each["left"], each["height"], each["width"] = 2, 3, 5, 7
    return operations


class Reads(TorchDispatchMode):
    """Counts the torch operations whose results the program must read before it can continue."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put_") else ()
        by_mask = any(index is not None and index.dtype == torch.bool for index in indices)
        if by_mask or name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2"):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def test_no_operation_reads_pixels_to_go_on() -> None:
    """On a GPU each read would wait until all work before it is done."""
    operations = of_every_kind(4)
    images = torch.randint(0, 256, (len(operations), 3, 24, 30), dtype=torch.uint8)
    with Reads() as reads:
        operate(images, operations)
    assert reads.found == []
    with Reads() as reads:
        images[images > 3].max().item()
    assert reads.found == ["index", "_local_scalar_dense"]


@needs_cuda
@pytest.mark.cuda
def test_operations_do_not_wait_for_the_gpu() -> None:
    operations = of_every_kind(4)
    images = torch.randint(0, 256, (len(operations), 3, 24, 30), dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        operate(images, operations)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_operations_follow_one_another_and_leave_other_images_alone() -> None:
    images = torch.arange(5 * 3 * 4 * 6, dtype=torch.uint8).view(5, 3, 4, 6)
    operations = nothing(5, 2)
    operations["kind"][1] = KINDS.index("invert"), KINDS.index("brightness")
    operations["kind"][3, 1] = KINDS.index("invert")
    operations["factor"][1, 1] = 0.5
    expected = images.clone()
    expected[1], expected[3] = F.adjust_brightness(F.invert(images[1]), 0.5), F.invert(images[3])
    operate(images, operations)
    assert torch.equal(images, expected)


def test_operations_for_another_number_of_images_are_refused() -> None:
    with pytest.raises(ValueError, match="3 images need operations of shape"):
        operate(torch.zeros(3, 3, 4, 4, dtype=torch.uint8), nothing(2, 1))
