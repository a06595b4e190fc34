"""Decodes images TIMES times: LIBRARY {whole,crop} TIMES IMAGE ...; LIBRARY is packer's C.

Prints the number of images that C left to other decoders, and a digest of all pixels.
"""

import hashlib
import importlib.util
import sys
from pathlib import Path

library, way, times, *paths = sys.argv[1:]
spec = importlib.util.spec_from_file_location("packer._images._native", library)
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])

import numpy as np  # noqa: E402

from packer._images import native, png  # noqa: E402
from packer._images.geometry import CROP, Box  # noqa: E402
from packer._images.jpeg import read_header  # noqa: E402

TARGET = (224, 224)
images = [Path(path).read_bytes() for path in paths]
sizes = [png.size_of(image) or read_header(image)[:2] for image in images]
rng, boxes = np.random.default_rng(0), []
for height, width in sizes:
    side = int(min(height, width) * rng.uniform(0.5, 1))
    place = int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1))
    crop = Box.of((*place, side, side), TARGET, flip=bool(rng.integers(2)))
    boxes.append(crop if way == "crop" else Box.of((0, 0, height, width), (height, width)))
outs = [np.zeros((*box.out, 3), np.uint8) for box in boxes]
addresses = np.array([out.ctypes.data for out in outs])
tasks = native.tasks(native.in_memory(images, sizes), np.array(boxes, CROP), addresses)
for _ in range(int(times)):
    left = native.decode_into(tasks)
print(len(left), hashlib.sha256(b"".join(out.tobytes() for out in outs)).hexdigest())
