"""Measures training loops of frameworks around packer's loaders, compared with the same step in a plain loop.

python benchmarks/frameworks.py PACK [--rounds 3] [--workers 2] [--batch-size 64] [--only NAME]

The network is the mean of each image's colours and a linear layer, which takes almost no time, so each loop waits for
its loader. A rate is measured from the first batch to the last. Loops take turns, and ratios are medians of the rounds.
Accelerate replaces packer's DataLoader by torch's over the same dataset, which is therefore opened with threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fused import MEAN, STD, pipelines
from report import table

import packer

CLASSES = 1000


class Network(torch.nn.Module):
    """Classifies images by their mean colour, and records the time and the size of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, CLASSES)
        self.seen: list[tuple[float, int]] = []

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        self.seen.append((time.perf_counter(), len(images)))
        logits = self.layer(images.mean((2, 3)))
        if labels is None:
            return logits
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    @property
    def rate(self) -> float:
        """The images a second from the first batch to the last."""
        return sum(count for _, count in self.seen[:-1]) / (self.seen[-1][0] - self.seen[0][0])


def step(network: Network, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> None:
    torch.nn.functional.cross_entropy(network(images), labels).backward()
    optimizer.step()
    optimizer.zero_grad()


def bare(network: Network, loader: Any) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for images, labels in loader:
        step(network, optimizer, images, labels)


def lightning(network: Network, loader: Any) -> None:
    import pytorch_lightning as pl

    class Training(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def training_step(self, batch: Any, number: int) -> Any:
            return self.network(*batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet)
    trainer.fit(Training(), loader)


def accelerate(network: Network, loader: Any) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    optimizer: Any = torch.optim.SGD(network.parameters(), lr=0.01)
    prepared, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    for images, labels in loader:
        accelerator.backward(torch.nn.functional.cross_entropy(prepared(images), labels))
        optimizer.step()
        optimizer.zero_grad()


class Named:
    """A loader whose batches are dicts."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return ({"images": images, "labels": labels} for images, labels in self.loader)


def trainer(network: Network, loader: Any) -> None:
    import transformers

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return Named(loader)

    with tempfile.TemporaryDirectory() as directory:
        arguments = transformers.TrainingArguments(
            directory, num_train_epochs=1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
        )
        Trainer(network, arguments, train_dataset=[None]).train()  # type: ignore[arg-type]


def ignite(network: Network, loader: Any) -> None:
    from ignite.engine import create_supervised_trainer

    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    create_supervised_trainer(network, optimizer, torch.nn.functional.cross_entropy).run(loader, max_epochs=1)


def fastai(network: Network, loader: Any) -> None:
    from fastai.callback.progress import ProgressCallback  # noqa: F401  # adds `no_bar` to learners
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.optimizer import OptimWrapper

    optimizer = partial(OptimWrapper, opt=torch.optim.SGD)
    learner = Learner(DataLoaders(loader, []), network, loss_func=torch.nn.functional.cross_entropy, opt_func=optimizer)
    with learner.no_bar(), learner.no_logging():
        learner.fit(1, 0.01)


FRAMEWORKS: dict[str, tuple[str, Callable[[Network, Any], None]]] = {
    "Lightning": ("pytorch_lightning", lightning),
    "Accelerate": ("accelerate", accelerate),
    "Trainer": ("transformers", trainer),
    "Ignite": ("ignite", ignite),
    "fastai": ("fastai", fastai),
}


def rate(loop: Callable[[Network, Any], None], loader: Any) -> float:
    network = Network()
    loop(network, loader)
    return network.rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3, help="how often an epoch has each image")
    parser.add_argument("--only", help="measure this framework")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transform = pipelines()["torchvision v1, training"]

    def many(dataset: Any) -> Any:
        return torch.utils.data.Subset(dataset, list(range(len(dataset))) * options.repeat)

    fused = many(packer.open_dataset(options.pack, transform, fuse=True))
    threaded = many(packer.open_dataset(options.pack, transform, fuse=True, threads=options.workers))
    cropped = many(packer.open_dataset(options.pack, crop=packer.RandomResizedCrop(224, flip=0.5)))
    size, numbers = options.batch_size, {"normalize": (MEAN, STD), "channels_last": False}
    loaders: dict[str, Callable[[], Any]] = {
        "DataLoader": lambda: packer.DataLoader(fused, size, shuffle=True, num_workers=options.workers),
        "Loader": lambda: packer.Loader(cropped, size, shuffle=True, threads=options.workers, **numbers),
    }
    rows = []
    for name, (module, loop) in FRAMEWORKS.items():
        if options.only not in (None, name) or importlib.util.find_spec(module) is None:
            continue
        for kind, make in loaders.items():
            of_framework = make
            if (name, kind) == ("Accelerate", "DataLoader"):
                of_framework = lambda: packer.DataLoader(threaded, size, shuffle=True)  # noqa: E731
            rates = [(rate(bare, make()), rate(loop, of_framework())) for _ in range(options.rounds)]
            medians = [statistics.median(column) for column in zip(*rates, strict=True)]
            ratio = statistics.median(own / alone for alone, own in rates)
            rows.append([f"{name}, {kind}", *(f"{value:,.0f}" for value in medians), f"{ratio:.2f}"])
            print(*rows[-1], sep="  ", flush=True)
    print(table(["images a second", "bare loop", "framework", "framework : bare"], rows))


if __name__ == "__main__":
    main()
