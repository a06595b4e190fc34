"""nvImageCodec on a GPU: it decodes the rectangle of each crop, a batch a call; torchvision resizes on the GPU."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, tensors_device
from peers.nvimage import random_region

REQUIRES = ("nvidia.nvimgcodec", "torchvision")
NOTE = (
    "a batch a call, crops as regions of the decoder, which chooses its backends; torchvision's resize on the GPU, "
    "anti-aliased, and flip; the next batch's bytes are read from packer's pack meanwhile"
)


def open_loader(
    pack: Path,
    crop: str,
    threads: int,
    *,
    device: str = "cuda",
    batch: int = BATCH,
    times: int = 1,
    crops: bool = True,
    dtype: str = "uint8",
) -> Any:
    """Return batches; without `crops`, of crops as they were decoded."""
    from nvidia import nvimgcodec

    from packer import open_dataset

    files = open_dataset(pack, output="bytes")
    decoder = nvimgcodec.Decoder(device_id=0, max_num_cpu_threads=threads)
    settings = tensors_device.Settings(device, batch, crops, dtype)
    return Regions(decoder, files, [*range(len(files))] * times, threads, settings)


class Regions(tensors_device.Batches):
    """Batches whose crops nvImageCodec decodes."""

    def __init__(self, decoder: Any, *settings: Any) -> None:
        super().__init__(*settings)
        self._decoder = decoder

    def _images(self, encoded: list[Any]) -> Any:
        import torch
        from nvidia import nvimgcodec
        from torchvision.transforms.v2 import functional

        streams = [nvimgcodec.CodeStream(data.numpy().tobytes()) for data in encoded]
        streams = [stream.get_sub_code_stream(region=random_region(stream)) for stream in streams]
        decoded = [torch.as_tensor(image, device=self._settings.device) for image in self._decoder.decode(streams)]
        if not self._settings.crops:
            return decoded
        made = []
        for image in decoded:
            tensor = functional.resize(image.permute(2, 0, 1), [OUTPUT, OUTPUT], antialias=True)
            made.append(functional.horizontal_flip(tensor) if random.random() < 0.5 else tensor)
        batch = torch.stack(made)
        numbers = self._settings.dtype
        return batch if numbers == "uint8" else tensors_device.normalized(batch, numbers)
