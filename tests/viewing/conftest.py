"""A small pack with everything that a viewer shows: fields, a damaged sample, the same image twice, odd names."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._viewing.catalog import open_catalog
from packer._viewing.server import Server
from packer.testing.photos import draw_photo

CLASSES = ["cat", "<b>dog</b>", "bird"]
SCRIPT = "cat/<script>document.title='broken'<script>.jpg"
DAMAGED = 5
TWICE = [7, 11]
COUNT = 24


def _jpeg(rng: np.random.Generator, height: int, width: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(draw_photo(rng, height, width)).save(stream, "jpeg", quality=90)
    return stream.getvalue()


def _samples() -> Any:
    rng = np.random.default_rng(0)
    photos = [_jpeg(rng, 60, 60 + 5 * number) for number in range(COUNT)]
    photos[TWICE[1]] = photos[TWICE[0]]
    for number, photo in enumerate(photos):
        height, width = Image.open(io.BytesIO(photo)).size[::-1]
        mask = np.zeros((height, width), np.uint8)
        mask[10:30, 10:30] = 3
        yield {
            "image": photo,
            "name": SCRIPT if number == 0 else f"{CLASSES[number % 3].strip('<b>/')}/Photo{number:02d}.jpg",
            "label": number % 3,
            "mask": mask,
            "boxes": np.array([[5, 5, 40, 50]], np.float32),
            "kind": np.array([number % 2]),
            "caption": f"photo <i>{number}</i>",
        }


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viewing") / "some.lmdb"
    fields = {
        "mask": "mask",
        "boxes": "boxes",
        "kind": packer.Field("kind", "labels", classes=("round", "flat")),
        "caption": "text",
    }
    packer.pack(_samples(), path, classes=CLASSES, fields=fields)
    with packer.open_pack(path) as reader:
        data = bytes(reader.read(DAMAGED))
    content = bytearray(path.read_bytes())
    content[content.index(data) + len(data) // 2] ^= 0xFF
    path.write_bytes(content)
    return path


def serving(path: Path) -> Iterator[Server]:
    catalog = open_catalog([path])
    with Server(catalog) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    catalog.close()


@pytest.fixture(scope="module")
def server(pack: Path) -> Iterator[Server]:
    yield from serving(pack)
