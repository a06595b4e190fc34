"""Measures reading a pack at a URL, compared with reading it from this disk: images a second, and bytes sent.

    python benchmarks/remote.py --source IMAGEFOLDER [--copies N] [--link MB/S] [--peers] [--json FILE]

nginx serves the pack on the loopback. A side is a process of its own, which reads one epoch by `packer.Loader`: photos,
RandomResizedCrop(224), in the side's order. Sides take turns, and ratios are medians over the rounds.
With a limited link, all connections go through one process that forwards at most MB/S from the server.

With --peers, LitData and MosaicML Streaming read a first epoch too: from packs of their own with the same photos, from
the same server as s3://, in as many processes. `scripts/peers` installs them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BATCH, PIECE = 64, 64 << 10
OURS = "packer, first epoch"  # compared with the peers
LATE = 0.02  # seconds of delay by other processes that the link makes up for, so that its buffers stay full
GOALS = {"first": 0.8, "link": 0.9, "second": 0.95, "fetched": 1.05}

_CONFIGURATION = """
{user} daemon off; pid {work}/nginx.pid; error_log {work}/error.log; worker_processes 1;
events {{ worker_connections 512; }}
http {{
  log_format counted '$request_method $status $body_bytes_sent $request_uri';
  access_log {work}/access.log counted; sendfile on; keepalive_requests 1000000;
  client_body_temp_path {work}/t1; proxy_temp_path {work}/t2; fastcgi_temp_path {work}/t3;
  uwsgi_temp_path {work}/t4; scgi_temp_path {work}/t5;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


@dataclass
class Measured:
    """An epoch of a side: images and seconds, and what the server sent meanwhile."""

    side: str
    images: int
    seconds: float
    requests: int = 0
    fetched: int = 0

    @property
    def rate(self) -> float:
        """Images a second."""
        return self.images / self.seconds


class Server:
    """nginx on the loopback, which serves a directory and counts what it sends."""

    def __init__(self, root: Path, work: Path) -> None:
        self.port, self._log = _free_port(), work / "access.log"
        user = "user root;" if os.geteuid() == 0 else ""  # another user may not read root's temporary directories
        (work / "nginx.conf").write_text(_CONFIGURATION.format(work=work, port=self.port, root=root, user=user))
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self._process = subprocess.Popen([program, "-c", str(work / "nginx.conf"), "-e", str(work / "error.log")])
        _wait_for(self.port)

    def count(self) -> tuple[int, int]:
        """Return the number of requests, and the bytes of bodies that were sent."""
        lines = [line.split() for line in self._log.read_text().splitlines()] if self._log.exists() else []
        return len(lines), sum(int(line[2]) for line in lines)

    def close(self) -> None:
        """End nginx."""
        self._process.terminate()
        self._process.wait()


class Link:
    """Forwards connections to a port; limits the bytes a second that come from it, of all connections together."""

    def __init__(self, port: int, rate: float) -> None:
        self._rate, self._to, self._free_at, self._lock = rate, port, 0.0, threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listening.getsockname()[1]

    def serve(self) -> None:
        """Take connections, for ever."""
        while True:
            near, _ = self._listening.accept()
            far = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=self._carry, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, True), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, limited: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(PIECE):
                if limited:
                    self._wait(len(data))
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _wait(self, size: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - LATE) + size / self._rate
            pause = self._free_at - now
        if pause > 0.002:
            time.sleep(pause)


def main() -> None:
    """Measure, and print both sides and the ratios."""
    arguments = _arguments()
    if arguments.link_to:
        link = Link(arguments.link_to, arguments.link * 1e6)
        print(link.port, flush=True)
        link.serve()
    if arguments.epochs:
        print(json.dumps(_read_here(arguments)))
        return
    with tempfile.TemporaryDirectory(prefix="packer-remote-", dir=arguments.work) as directory:
        _measure(Path(directory), arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="a directory of photos as ImageFolder takes it")
    parser.add_argument("--copies", type=int, default=10, help="how often each photo is in the pack (10)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--link", type=float, default=50, help="MB a second of the limited link (50)")
    parser.add_argument("--work", type=Path, help="where the pack is written")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--peers", action="store_true", help="measure LitData and MosaicML Streaming beside")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--decoder", default="tensors", help="how the peers decode: pil, or tensors (torchvision)")
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)  # the server of s3://
    parser.add_argument("--link-to", type=int, default=0, help=argparse.SUPPRESS)  # for the process of the link
    parser.add_argument("--epochs", type=int, default=0, help=argparse.SUPPRESS)  # for the process of a side
    parser.add_argument("--pack", help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    parser.add_argument("--order", default="blocks", help=argparse.SUPPRESS)
    return parser.parse_args()


def _read_here(arguments: argparse.Namespace) -> list[tuple[int, float]]:
    """Read epochs of a pack in this process; return images and seconds of each."""
    if arguments.endpoint:
        os.environ |= {
            "AWS_ENDPOINT_URL": arguments.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    if arguments.peer:
        return [_read_peer(arguments)]
    import packer

    cache = {} if arguments.cache is None else {"cache_dir": arguments.cache, "cache_size": "20 GB"}
    dataset = packer.open_dataset(arguments.pack, crop=packer.RandomResizedCrop(224), **cache)
    blocks = packer.BlockShuffleSampler(len(dataset))
    how = {"shuffle": True} if arguments.order == "random" else {"sampler": blocks}
    found = []
    with packer.Loader(dataset, BATCH, threads=arguments.threads, **how) as loader:
        for _ in range(arguments.epochs):
            begun = time.perf_counter()
            images = sum(len(labels) for _, labels in loader)
            found.append((images, time.perf_counter() - begun))
    return found


def _read_peer(arguments: argparse.Namespace) -> tuple[int, float]:
    from remotepeers import open_remote

    loader = open_remote(
        arguments.peer, arguments.pack, Path(arguments.cache), arguments.threads, decoder=arguments.decoder
    )
    begun = time.perf_counter()
    images = sum(len(labels) for _, labels in loader)
    return images, time.perf_counter() - begun


def _measure(work: Path, arguments: argparse.Namespace) -> None:
    from report import machine, table, write_json

    pack = _pack(work, arguments)
    measured: list[Measured] = []
    with _serving(work, work / "served", arguments.link) as (server, limited):
        for _ in range(arguments.rounds):
            measured += _sides(server, arguments, "local, warm", ["local"], pack, None)
            if arguments.peers:
                measured += _peer_sides(server, arguments, pack, work)
            else:
                measured += _sides_of_urls(server, limited, arguments, pack, work)
    used = _bytes_of_samples(pack)
    rows = [_row(side, measured, used, arguments) for side in dict.fromkeys(one.side for one in measured)]
    of = "of packer's" if arguments.peers else "of local"
    print(table(["side", "images a second", of, "requests", "bytes fetched of those used"], rows))
    if arguments.json is not None:
        figures = [asdict(one) | {"rate": one.rate} for one in measured]
        write_json(arguments.json, {"machine": machine(), "goals": GOALS, "used": used, "epochs": figures})


def _sides_of_urls(
    server: Server, limited: int, arguments: argparse.Namespace, pack: Path, work: Path
) -> list[Measured]:
    """Read the pack at its URL, in each way."""
    url, slow = (f"http://127.0.0.1:{port}/{pack.parent.name}/{pack.name}" for port in (server.port, limited))
    cache, names = work / "cache", ["first epoch", "second epoch"]
    measured = _sides(server, arguments, "URL", names, url, cache / "blocks")
    measured += _sides(server, arguments, "URL", ["first epoch, random order"], url, cache / "random", "random")
    measured += _sides(server, arguments, "URL", ["first epoch, no cache directory"], url, "")
    measured += _sides(server, arguments, f"{arguments.link:g} MB/s", ["first epoch, limited"], slow, cache / "limited")
    shutil.rmtree(cache)
    return measured


def _peer_sides(server: Server, arguments: argparse.Namespace, pack: Path, work: Path) -> list[Measured]:
    """Read the pack and those of the peers from the same bucket."""
    from remotepeers import PEERS

    bucket, cache = f"s3://{pack.parent.name}", work / "cache"
    at = ["--endpoint", f"http://127.0.0.1:{server.port}"]
    measured = _sides(server, arguments, "s3", [OURS], f"{bucket}/{pack.name}", cache / "packer", more=at)
    for peer, name in PEERS.items():
        more = [*at, "--peer", peer, "--decoder", arguments.decoder]
        measured += _sides(server, arguments, "s3", [f"{name}, first epoch"], bucket, cache / peer, more=more)
    shutil.rmtree(cache)
    return measured


def _row(side: str, measured: list[Measured], used: int, arguments: argparse.Namespace) -> list[str]:
    base = OURS if arguments.peers else "local"
    own, others = ([one for one in measured if one.side == name] for name in (side, base))
    ratio = statistics.median(one.rate / other.rate for one, other in zip(own, others, strict=True))
    fetched = statistics.median(one.fetched for one in own) / used
    of_link = statistics.median(one.fetched / one.seconds for one in own) / (arguments.link * 1e6)
    share = f"{of_link:.2f} of the link" if "limited" in side else f"{ratio:.2f}"
    rate, requests = (statistics.median(getattr(one, what) for one in own) for what in ("rate", "requests"))
    return [side, f"{rate:,.0f}", share, f"{requests:,.0f}", f"{fetched:.3f}"]


def _sides(  # noqa: PLR0917
    server: Server,
    arguments: argparse.Namespace,
    where: str,
    sides: list[str],
    pack: Any,
    cache: Any,
    order: str = "",
    more: Sequence[str] = (),
) -> list[Measured]:
    """Read a pack in a process of its own, an epoch for each side."""
    before, words = server.count(), ["--pack", str(pack), "--threads", str(arguments.threads)]
    words += ["--cache", str(cache)] if cache is not None else []
    words += [*(["--order", order] if order else []), *more]
    line = [sys.executable, __file__, "--epochs", str(len(sides)), *words]
    epochs = json.loads(subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout)
    after = server.count()
    found = [Measured(side, *epoch) for side, epoch in zip(sides, epochs, strict=True)]
    found[0].requests, found[0].fetched = after[0] - before[0], after[1] - before[1]  # later epochs fetch nothing
    print(f"  {where}: {', '.join(f'{one.side} {one.rate:,.0f}' for one in found)}", file=sys.stderr)
    return found


def _pack(work: Path, arguments: argparse.Namespace) -> Path:
    """Make a pack of photos, with --copies of each."""
    import packer

    tree = work / "tree"
    for photo in sorted(path for path in arguments.source.rglob("*") if path.is_file()):
        folder = tree / photo.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(arguments.copies):
            shutil.copyfile(photo, folder / f"{number}-{photo.name}")
    bucket = work / "served" / "bucket"
    bucket.mkdir(parents=True)
    packer.convert(tree, bucket / "photos.lmdb")
    if arguments.peers:
        from remotepeers import prepare

        prepare(tree, bucket)
    shutil.rmtree(tree)
    return bucket / "photos.lmdb"


def _bytes_of_samples(pack: Path) -> int:
    import packer

    return packer.info(pack).bytes_of_samples


@contextlib.contextmanager
def _serving(work: Path, root: Path, rate: float) -> Iterator[tuple[Server, int]]:
    """Serve a directory; yield the server, and the port of a limited link to it."""
    server = Server(root, work)
    line = [sys.executable, __file__, "--link-to", str(server.port), "--link", str(rate)]
    link = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert link.stdout is not None
    try:
        yield server, int(link.stdout.readline())
    finally:
        link.kill()
        link.wait()
        server.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit("nginx does not answer: is it installed?")


if __name__ == "__main__":
    main()
