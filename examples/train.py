"""Train a ResNet on packs: Loader, CUDAPrefetcher, mixed precision, channels last, DDP, resuming.

    python examples/train.py train.lmdb val.lmdb                      one GPU, or the CPU
    torchrun --nproc-per-node 8 examples/train.py train.lmdb val.lmdb

A checkpoint is written every epoch and every --save-every steps; the same command continues from it at the very next
sample, also on another number of GPUs. The networks are torchvision's; --arch tiny works without torchvision.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # DDP would import it later, and its functions keep a process group that is there by then
from torch import nn

from packer import CUDAPrefetcher, Loader, RandomResizedCrop, ResizeCenterCrop, open_dataset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    options = parse()
    _, local_rank, world = (int(os.environ.get(name, default)) for name, default in LAUNCHER)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    fit(options, device)
    if world > 1:
        # No network uses the group any more, so this ends its threads, which may otherwise abort Python when it exits.
        dist.barrier()
        dist.destroy_process_group()


def fit(options: argparse.Namespace, device: torch.device) -> None:
    """Train, evaluate and save, epoch by epoch."""
    rank, _, world = (int(os.environ.get(name, default)) for name, default in LAUNCHER)
    torch.manual_seed(options.seed)
    batches, val_batches = data(options, device)
    model = network(options.arch, len(batches.source.dataset.classes)).to(device, memory_format=torch.channels_last)
    parallel = nn.parallel.DistributedDataParallel(model, device_ids(device)) if world > 1 else model
    run = Run(options, model, batches, steps=options.epochs * len(batches))
    if run.epoch >= options.epochs and rank == 0:
        print(f"all {options.epochs} epochs are done; remove {options.checkpoint} to train anew")
    for epoch in range(run.epoch, options.epochs):
        started, first = time.monotonic(), run.step
        loss, complete = train(parallel, batches, run, device)
        rate = (run.step - first) * options.batch_size * world / (time.monotonic() - started)
        correct, count = evaluate(parallel, val_batches, device)
        if complete:
            run.epoch = epoch + 1
        run.save()
        if rank == 0:
            print(f"epoch {epoch}, step {run.step}: loss {loss:.3f}, accuracy {correct / count:.3f}, {rate:.0f} img/s")
        if not complete:
            break


def device_ids(device: torch.device) -> list[int] | None:
    return [device.index] if device.type == "cuda" else None


LAUNCHER = [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")]


def data(options: argparse.Namespace, device: torch.device) -> tuple[CUDAPrefetcher, CUDAPrefetcher]:
    """Return the batches to train on and those to evaluate on; each rank gets its share by itself."""
    train = open_dataset(
        options.train, crop=RandomResizedCrop(options.size, flip=0.5), seed=options.seed, stage=options.stage
    )
    val = open_dataset(options.val, crop=ResizeCenterCrop(options.size, options.size * 8 // 7), stage=options.stage)
    if train.classes != val.classes:
        raise SystemExit("the packs have different classes: convert val with --classes-from train")
    cuda = device.type == "cuda"
    shared = {"threads": options.threads, "pin_memory": cuda}
    loaders = [
        Loader(train, options.batch_size, shuffle=True, seed=options.seed, drop_last=True, **shared),
        Loader(val, options.batch_size, **shared),
    ]
    if not len(loaders[0]):
        raise SystemExit(
            f"{options.train}: {len(train)} samples do not fill a batch of {options.batch_size} on each rank; "
            "say a smaller --batch-size"
        )
    dtype = torch.bfloat16 if cuda else torch.float32
    first, second = (CUDAPrefetcher(loader, device, normalize=(MEAN, STD), dtype=dtype) for loader in loaders)
    return first, second


class Run:
    """A training run: its epoch and step, and all that its checkpoint holds."""

    def __init__(self, options: argparse.Namespace, model: nn.Module, batches: CUDAPrefetcher, steps: int) -> None:
        self.optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=5e-5, nesterov=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, options.lr, max(steps, 2) + 1)
        self.epoch = self.step = 0
        self.stop_after = options.stop_after
        self.save_every = options.save_every
        self._path = options.checkpoint
        self._parts = {"model": model, "optimizer": self.optimizer, "schedule": self.schedule, "batches": batches}
        if self._path.exists():
            state = torch.load(self._path, map_location="cpu", weights_only=True)
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
            self.epoch, self.step = state["epoch"], state["step"]

    def save(self) -> None:
        """Write the checkpoint; a reader finds the old one or the new one."""
        if int(os.environ.get("RANK", "0")) == 0:
            state = {name: part.state_dict() for name, part in self._parts.items()}
            partial = self._path.with_suffix(".partial")
            torch.save({**state, "epoch": self.epoch, "step": self.step}, partial)
            os.replace(partial, self._path)


def train(model: nn.Module, batches: CUDAPrefetcher, run: Run, device: torch.device) -> tuple[float, bool]:
    """Train until the epoch or --stop-after ends; return the last loss, and whether the epoch was completed."""
    model.train()
    loss = torch.zeros(())
    for images, labels in batches:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        run.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        run.optimizer.step()
        run.schedule.step()
        run.step += 1
        if run.step % run.save_every == 0:
            run.save()
        if run.step == run.stop_after:
            return loss.item(), False
    return loss.item(), True


@torch.inference_mode()
def evaluate(model: nn.Module, batches: CUDAPrefetcher, device: torch.device) -> tuple[int, int]:
    """Return how many images are classified rightly and how many there are, on all ranks together."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels in batches:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            predicted = model(images).argmax(1)
        counts += torch.stack([(predicted == labels).sum(), torch.tensor(len(labels), device=device)])
    if dist.is_initialized():
        dist.all_reduce(counts)
    return int(counts[0]), int(counts[1])


def network(arch: str, classes: int) -> nn.Module:
    """Return a network by its name in torchvision, or the tiny one."""
    if arch != "tiny":
        try:
            import torchvision
        except ImportError:
            raise SystemExit(f"{arch} is torchvision's: pip install torchvision, or say --arch tiny") from None

        return torchvision.models.get_model(arch, num_classes=classes)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, classes),
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="the pack to train on")
    parser.add_argument("val", help="the pack to evaluate on")
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--size", type=int, default=224, help="pixels")
    parser.add_argument("--batch-size", type=int, default=256, help="images of each rank in a step")
    parser.add_argument("--epochs", type=int, default=18)
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="stop then, as if interrupted")
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="decoders of each rank; by default all CPUs")
    parser.add_argument("--stage", type=Path, help="copy the packs to this directory first, once a node")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--save-every", type=int, default=1000, metavar="STEPS")
    return parser.parse_args()


if __name__ == "__main__":
    main()
