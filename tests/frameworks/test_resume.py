"""A run that PyTorch Lightning resumes from its checkpoint sees what the whole run sees."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import packer
from packer.testing.photos import draw_imagefolder

pytestmark = pytest.mark.filterwarnings("default")  # of frameworks, which warn of many things


@pytest.fixture(scope="module")
def lightning() -> ModuleType:
    """Import PyTorch Lightning here and not in the module: every worker of pytest would spend seconds on it."""
    return pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")


def watching(lightning: ModuleType, seen: list[tuple[int, str]]) -> Any:
    """Return a model that records the epoch and a digest of the images of each batch."""

    class Watching(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Linear(3 * 16 * 16, 12)

        def training_step(self, batch: Any, number: int) -> Any:
            images, labels = batch
            seen.append((self.current_epoch, hashlib.sha256(images.contiguous().numpy().tobytes()).hexdigest()))
            return torch.nn.functional.cross_entropy(self.model(images.flatten(1)), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Watching()


@pytest.mark.parametrize("step", [2, 3, 4])
def test_lightning_goes_on_at_the_very_next_sample(step: int, lightning: ModuleType, tmp_path: Path) -> None:
    """In the middle of an epoch, at its end, and in the next: three steps are an epoch."""
    draw_imagefolder(tmp_path / "tree", classes=12, per_class=1, size=(24, 32))
    packer.convert(tmp_path / "tree", tmp_path / "train.lmdb")

    def run(seed: int, resume: Path | None = None, **settings: Any) -> list[tuple[int, str]]:
        torch.manual_seed(seed)
        seen: list[tuple[int, str]] = []
        dataset = packer.LMDBImageDataset(tmp_path / "train.lmdb", crop=packer.RandomResizedCrop(16))
        loader = packer.Loader(dataset, 4, shuffle=True, normalize=((0.5,) * 3, (0.5,) * 3))
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_epochs=3, default_root_dir=tmp_path, accelerator="cpu", **quiet, **settings)
        trainer.fit(watching(lightning, seen), loader, ckpt_path=resume, weights_only=False)
        return seen

    saving = lightning.callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    whole = run(1, callbacks=[saving])
    assert len(whole) == 9
    assert run(2, tmp_path / f"step={step}.ckpt", enable_checkpointing=False) == whole[step:]
