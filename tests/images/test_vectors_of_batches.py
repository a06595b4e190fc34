"""Operations on pixels and normalised batches have the same results with all vectors as with fewer.

These tests need torch, which the other tests of vectors do not.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from packer._images import native, numbers
from packer._images.extension import VECTORS
from packer._images.operations import KINDS, NO_FILL
from tests.augment.operation import operated, operation

pytestmark = pytest.mark.skipif(not VECTORS, reason="needs a C compiler at the installation, and AVX2 or NEON")

Pixels = npt.NDArray[np.uint8]
Both = Callable[[Callable[[], Pixels | None]], bool]
many = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_numbers_of_many_images(other: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.randint(0, 256, (4, 224, 224, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    how = numbers.NumberFormat(((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "float32")
    made = [torch.empty(pixels.shape, memory_format=torch.channels_last) for _ in range(2)]
    how.write(pixels, made[0])
    monkeypatch.setattr(numbers, "_native", other)
    how.write(pixels, made[1])
    assert torch.equal(*made)


@many
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_operations(by_both: Both, data: st.DataObject, kind: str) -> None:
    size = data.draw(st.tuples(st.integers(12, 90), st.one_of(st.integers(12, 90), st.integers(250, 530))))
    pixels = np.random.default_rng(size).integers(0, 256, (*size, 3), np.uint8)
    factor = data.draw(st.floats(-0.5, 0.5) if kind == "hue" else st.floats(0.1, 8 if kind == "blur" else 3))
    fields = {"factor": factor, "interpolation": data.draw(st.integers(0, 1)), "height": 5, "width": 9}
    fields |= {"height": 23, "width": 21} if kind == "blur" else {}
    matrix = data.draw(st.lists(st.floats(-2, 2), min_size=6, max_size=6))
    fields["fill"] = data.draw(st.sampled_from([NO_FILL, 0x102030]))
    assert by_both(lambda: operated(pixels, operation(kind, matrix=matrix, **fields)))


@many
@given(
    width=st.integers(1, 300),
    dtype=st.sampled_from(numbers.TYPES),
    planes=st.booleans(),
    mixture=st.sampled_from([None, numbers.Mixture(0.3), numbers.Mixture(0.5, (1, 0, 3, 1))]),
)
def test_numbers(by_both: Both, width: int, dtype: str, planes: bool, mixture: numbers.Mixture | None) -> None:
    constants = (0.485, 0.456, 0.406), (0.229, 1e-7, 1e4)  # in float16, infinite and nearly 0
    pixels = torch.from_numpy(np.random.default_rng(width).integers(0, 256, (2, 4, width, 3), np.uint8))
    layout = torch.contiguous_format if planes else torch.channels_last
    made = torch.empty((2, 3, 4, width), dtype=getattr(torch, dtype), memory_format=layout)

    def written() -> Pixels:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(numbers, "_native", native._native)
            how = numbers.NumberFormat(constants, dtype, planes)
            numbers.NumberWriter(how, pixels.permute(0, 3, 1, 2), made, mixture).write(slice(2))
        return made.view(torch.int32 if dtype == "float32" else torch.int16).numpy().copy()

    assert by_both(written)
