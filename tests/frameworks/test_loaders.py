"""packer's DataLoader and Loader in training frameworks: every kind of pass sees every sample once."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

import packer
from tests.command import python
from tests.conftest import Packs, Trees

COUNT = 10
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

pytestmark = pytest.mark.filterwarnings("default")  # of frameworks, which warn of many things


@pytest.fixture(scope="module")
def pack(trees: Trees, packs: Packs) -> Path:
    return packs(trees(classes=COUNT, per_class=1, size=(24, 32)))


@pytest.fixture(params=["DataLoader", "Loader"])
def make(request: pytest.FixtureRequest, pack: Path) -> Callable[..., Any]:
    """Return a function that makes loaders of one class; both classes yield normalised batches of 4 images."""
    if request.param == "Loader":
        dataset = packer.open_dataset(pack, crop=packer.RandomResizedCrop(16))
        return partial(packer.Loader, dataset, 4, threads=1, normalize=(MEAN, STD), channels_last=False)
    transforms = pytest.importorskip("torchvision.transforms")
    conversions = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    transform = transforms.Compose([transforms.RandomResizedCrop(16), *conversions])
    return partial(packer.DataLoader, packer.open_dataset(pack, transform, fuse=True), 4, num_workers=1)


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, COUNT))


def of(framework: str) -> Any:
    return pytest.importorskip(framework, reason=f"needs {framework}")


def test_lightning(make: Callable[..., Any]) -> None:
    lightning = of("pytorch_lightning")

    class Watching(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = network()
            self.seen: dict[str, list[int]] = {"training": [], "validation": [], "test": [], "prediction": []}

        def training_step(self, batch: Any, _: int) -> Any:
            images, labels = batch
            self.seen["training"] += labels.tolist()
            return torch.nn.functional.cross_entropy(self.model(images), labels)

        def validation_step(self, batch: Any, _: int) -> None:
            if not self.trainer.sanity_checking:
                self.seen["validation"] += batch[1].tolist()

        def test_step(self, batch: Any, number: int) -> None:
            self.seen["test"] += batch[1].tolist()

        def predict_step(self, batch: Any, _: int) -> None:
            self.seen["prediction"] += batch[1].tolist()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_checkpointing=False, **quiet)
    model = Watching()
    trainer.fit(model, make(shuffle=True), make())
    trainer.validate(model, make(), verbose=False)
    trainer.test(model, make(), verbose=False)
    trainer.predict(model, make())
    times = {"training": 2, "validation": 3, "test": 1, "prediction": 1}
    assert {name: sorted(labels) for name, labels in model.seen.items()} == {
        name: sorted([*range(COUNT)] * count) for name, count in times.items()
    }


def test_lightning_asks_for_part_of_an_epoch(make: Callable[..., Any], pack: Path) -> None:
    lightning = of("pytorch_lightning")

    class Counting(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.count = network(), 0

        def training_step(self, batch: Any, _: int) -> Any:
            self.count += 1
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch: Any, _: int) -> None:
            pass

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    for limit, count in (
        ({"limit_train_batches": 2}, 2),
        ({"limit_train_batches": 0.4}, 1),
        ({"fast_dev_run": True}, 1),
        ({"max_steps": 4}, 4),
        ({"reload_dataloaders_every_n_epochs": 1, "max_epochs": 2}, 6),
        ({"val_check_interval": 0.34}, 3),
    ):
        settings = {"max_epochs": -1 if "max_steps" in limit else 1, "enable_checkpointing": False}
        model = Counting()
        lightning.Trainer(**{**quiet, **settings, **limit}).fit(model, make(shuffle=True), make())
        assert model.count == count, limit


def test_lightning_goes_on_with_the_dataloader_at_the_very_next_sample(pack: Path, tmp_path: Path) -> None:
    lightning = of("pytorch_lightning")

    class Watching(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = network(), list[Any]()

        def training_step(self, batch: Any, _: int) -> Any:
            images, labels = batch
            self.seen.append((labels.tolist(), images.sum().item()))
            return torch.nn.functional.cross_entropy(self.model(images / 255), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def run(seed: int, resume: Path | None = None, **settings: Any) -> list[Any]:
        torch.manual_seed(seed)
        dataset = packer.open_dataset(pack, crop=packer.RandomResizedCrop(16))
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_epochs=1, default_root_dir=tmp_path, accelerator="cpu", **quiet, **settings)
        model = Watching()
        loader = packer.DataLoader(dataset, 3, shuffle=True, num_workers=1)
        trainer.fit(model, loader, ckpt_path=resume, weights_only=False)
        return model.seen

    saving = lightning.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    whole = run(1, callbacks=[saving])
    assert len(whole) == 4
    assert run(2, tmp_path / "step=2.ckpt", enable_checkpointing=False) == whole[2:]


RANKS = """
import json, sys, warnings
from pathlib import Path
import pytorch_lightning as pl
import torch
import packer

class Watching(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.seen, self.predicted = torch.nn.Linear(3, 10), [], []

    def training_step(self, batch, number):
        images, labels = batch
        self.seen.append(labels.tolist())
        return torch.nn.functional.cross_entropy(self.model(images.float().mean((2, 3))), labels)

    def predict_step(self, batch, number):
        self.predicted.append(batch[1].tolist())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    pack, out = sys.argv[1:]
    dataset = packer.open_dataset(pack, crop=packer.CenterCrop(16))
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    for make, workers in (packer.DataLoader, {"num_workers": 1}), (packer.Loader, {}):
        trainer = pl.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", **quiet)
        model = Watching()
        trainer.fit(model, make(dataset, 2, shuffle=True, **workers))
        trainer.predict(model, make(dataset, 2, **workers))
        said = {"seen": model.seen, "predicted": model.predicted}
        Path(out, f"{make.__name__}{trainer.global_rank}.json").write_text(json.dumps(said))
"""


SCRIPT = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def test_two_ranks_of_lightning_see_every_sample_once(pack: Path, tmp_path: Path) -> None:
    of("pytorch_lightning")
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    python(SCRIPT, script, pack, tmp_path)
    for kind in ("DataLoader", "Loader"):
        said = [json.loads((tmp_path / f"{kind}{rank}.json").read_text()) for rank in range(2)]
        for epoch in range(2):
            seen = [
                label for of_rank in said for labels in of_rank["seen"][3 * epoch : 3 * epoch + 3] for label in labels
            ]
            assert sorted(seen) == [*range(COUNT)], kind
        predicted = [label for of_rank in said for labels in of_rank["predicted"] for label in labels]
        assert sorted(predicted) == [*range(COUNT)], kind


@pytest.mark.parametrize("workers", [0, 2])
def test_two_ranks_see_every_sample_once(pack: Path, workers: int) -> None:
    dataset = packer.open_dataset(pack, crop=packer.CenterCrop(16))
    for epoch in range(2):
        seen = []
        for rank in range(2):
            sampler: Any = DistributedSampler(dataset, 2, rank, seed=3)  # type: ignore[arg-type, var-annotated]
            sampler.set_epoch(epoch)
            loader = packer.DataLoader(dataset, 2, sampler=sampler, num_workers=workers)
            seen += [label for _, labels in loader for label in labels.tolist()]
        assert sorted(seen) == [*range(COUNT)]


def test_accelerate(make: Callable[..., Any]) -> None:
    """accelerate replaces packer's DataLoader by torch's over the same dataset, and leaves a Loader as it is."""
    accelerate = of("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model, given = network(), make(shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), given)
    if isinstance(given, packer.Loader):
        assert loader is given
    else:
        assert isinstance(loader, torch.utils.data.DataLoader)
        assert not isinstance(loader, packer.DataLoader)
        assert loader.dataset is given.dataset
    for _ in range(2):
        seen: list[int] = []
        for images, labels in loader:
            seen += labels.tolist()
            accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
        assert sorted(seen) == [*range(COUNT)]


class Named:
    """A loader whose batches are dicts, as the Trainer of transformers requires."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return ({"pixels": images, "labels": labels} for images, labels in self.loader)


class Classifier(torch.nn.Module):
    """Records the labels that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.seen = network(), list[int]()

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen += labels.tolist()
        logits = self.model(pixels)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_trainer(make: Callable[..., Any], tmp_path: Path) -> None:
    transformers = of("transformers")
    of("accelerate")

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return Named(make(shuffle=True))

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return Named(make())

        def get_test_dataloader(self, test_dataset: Any) -> Any:
            return Named(make())

    arguments = transformers.TrainingArguments(
        str(tmp_path), num_train_epochs=2, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
    )
    model, dataset = Classifier(), [None]
    trainer = Trainer(model, arguments, train_dataset=dataset, eval_dataset=dataset)
    trainer.train()
    assert sorted(model.seen) == sorted([*range(COUNT)] * 2)
    trainer.evaluate()
    assert len(trainer.predict(dataset).predictions) == COUNT
    assert sorted(model.seen) == sorted([*range(COUNT)] * 4)


def test_ignite(make: Callable[..., Any]) -> None:
    engines = of("ignite.engine")
    model, seen = network(), list[int]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trainer = engines.create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)
    trainer.add_event_handler(
        engines.Events.ITERATION_STARTED, lambda engine: seen.extend(engine.state.batch[1].tolist())
    )
    trainer.run(make(shuffle=True), max_epochs=2)
    assert sorted(seen) == sorted([*range(COUNT)] * 2)


@pytest.mark.skipif(importlib.util.find_spec("fastai") is None, reason="needs fastai")
def test_fastai(make: Callable[..., Any]) -> None:
    from fastai.callback.progress import ProgressCallback  # noqa: F401  # adds `no_bar` to learners
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.optimizer import OptimWrapper

    seen: list[int] = []

    def loss(made: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.extend(labels.tolist())
        return torch.nn.functional.cross_entropy(made, labels)

    loaders = DataLoaders(make(shuffle=True), make())
    learner = Learner(loaders, network(), loss_func=loss, opt_func=partial(OptimWrapper, opt=torch.optim.SGD))
    with learner.no_bar(), learner.no_logging():
        learner.fit(2, 0.01)
    assert sorted(seen) == sorted([*range(COUNT)] * 4)  # training and validation
