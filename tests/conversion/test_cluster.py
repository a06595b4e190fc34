"""Conversions in parts on a Dask cluster of separate processes over TCP: the same pack, even if workers are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from packer._conversion.convert import convert
from packer._conversion.dask import ClusterProgress, _Watch, convert_on, open_client
from packer._conversion.partition import Partition, SharedSource, finish
from packer._conversion.recipe import Recipe
from packer._conversion.request import ConversionRequest
from packer._packs.info import digest
from packer._sources.imagefolder import imagefolder_source
from packer.errors import ClusterError, ResumeError
from packer.testing.photos import draw_imagefolder
from tests.command import command, packer, packer_many, python
from tests.samples import solid

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install dask-jobqueue")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two workers, which are processes that are restarted when they die."""
    before = dict(os.environ)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        _restore(before)
        yield cluster
    _restore(before)


def _restore(variables: Mapping[str, str]) -> None:
    """Remove the variables that Dask sets in this process: new Python processes read them, see `tests.command`."""
    for name in os.environ.keys() - variables:
        del os.environ[name]
    os.environ.update(variables)


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def begin(path: Path, tree: Path, parts: int = 12, scratch: Path | None = None) -> tuple[Partition, SharedSource]:
    job = Partition(ConversionRequest(src=tree, dst=path, parts=parts, codec="png"), scratch)
    job.begin(lambda: imagefolder_source(tree), {}, share=True)
    return job, SharedSource(job.listing())


def test_a_cluster_gives_the_same_pack(client: Any, tree: Path, whole: str, tmp_path: Path) -> None:
    job, source = begin(tmp_path / "out.lmdb", tree, scratch=tmp_path / "scratch")
    seen: list[ClusterProgress] = []
    parts = convert_on(client, job, source, progress=seen.append)
    assert sorted(part.number for part in parts) == list(range(12))
    assert all(part.note == "" for part in parts)
    assert sum(part.images for part in parts) == 120
    assert max(progress.workers for progress in seen) == 2
    assert all(progress.total == 120 for progress in seen)
    finish(job.destination)
    assert digest(job.destination) == whole
    assert os.listdir(tmp_path / "scratch") == []


def test_a_killed_worker_s_part_is_made_elsewhere(client: Any, tree: Path, whole: str, tmp_path: Path) -> None:
    job, source = begin(tmp_path / "out.lmdb", tree)
    workers = client.run(os.getpid)
    victims = list(workers.values())[:1]

    def kill(progress: ClusterProgress) -> None:
        while victims:  # at its first call, when every worker has its first part
            os.kill(victims.pop(), signal.SIGKILL)

    convert_on(client, job, source, progress=kill)
    assert victims == []
    finish(job.destination)
    assert digest(job.destination) == whole
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != set(workers.values())


def test_a_part_that_fails_is_named_and_the_rest_is_made(client: Any, tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    draw_imagefolder(root, classes=2, per_class=10, size=(16, 16))
    bad = root / "class_01" / "0003.jpg"
    good = bad.read_bytes()
    bad.write_text("no image")
    job, source = begin(tmp_path / "out.lmdb", root, 5)
    with pytest.raises(ClusterError, match=r"1 of 5 parts failed 3 times(.|\n)*part 3: class_01/0003\.jpg"):
        convert_on(client, job, source)
    assert job.missing() == [3]
    bad.write_bytes(good)
    assert [part.number for part in convert_on(client, job, source)] == [3]
    finish(job.destination)
    convert(imagefolder_source(root), tmp_path / "whole.lmdb", recipe=Recipe("png"))
    assert digest(job.destination) == digest(tmp_path / "whole.lmdb")


def test_a_file_that_changed_since_the_job_began(client: Any, tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    draw_imagefolder(root, classes=2, per_class=10, size=(16, 16))
    file = root / "class_01" / "0003.jpg"
    job, source = begin(tmp_path / "out.lmdb", root, 5)
    kept = shutil.copy2(file, tmp_path / "kept.jpg")
    solid(file)
    with pytest.raises(ClusterError, match=r"part 3: .*was changed: class_01/0003\.jpg \(its size was"):
        convert_on(client, job, source)
    assert job.missing() == [3]
    with pytest.raises(ResumeError, match=r"1 image was changed: class_01/0003\.jpg \(its size was"):
        begin(tmp_path / "out.lmdb", root, 5)
    shutil.copy2(kept, file)
    convert_on(client, job, source)
    finish(job.destination)
    convert(imagefolder_source(root), tmp_path / "whole.lmdb", recipe=Recipe("png"))
    assert digest(job.destination) == digest(tmp_path / "whole.lmdb")


def test_a_killed_client_s_job_continues(cluster: Any, client: Any, tree: Path, whole: str, tmp_path: Path) -> None:
    out, pack = tmp_path / "out.lmdb", tmp_path / "out.lmdb.partial" / "pack"
    line = ["convert", tree, out, "--codec", "png", "--parts", 12, "--cluster", cluster.scheduler_address]
    process = subprocess.Popen(command(*line), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not (made := list(pack.glob("part-*.lmdb"))):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made_at = {path.name: path.stat().st_mtime_ns for path in made}
    assert not out.exists()
    result = packer(*line)
    assert (result.returncode, result.stderr.count("Traceback")) == (0, 0), result.stderr
    assert "dashboard at http://" in result.stderr
    assert "120 samples, 4 classes" in result.stdout
    assert digest(out) == whole
    assert {name: (out / name).stat().st_mtime_ns for name in made_at} == made_at


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_an_interrupt_at_the_terminal_ends_all_in_one_line(tmp_path: Path) -> None:
    """It reaches the workers too, as they belong to the same process group."""
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=10, size=(200, 300))
    for image in sorted((tmp_path / "tree").glob("*/*.jpg")):  # so many that the interrupt comes before the end
        for number in range(100):
            os.link(image, image.with_name(f"{image.stem}-{number}.jpg"))
    out, pack = tmp_path / "out.lmdb", tmp_path / "out.lmdb.partial" / "pack"
    line = ["convert", tmp_path / "tree", out, "--codec", "png", "--parts", 400, "--quiet", "--cluster", "local:2"]
    process = subprocess.Popen(command(*line), stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(pack.glob("part-*.lmdb")):
        assert process.poll() is None
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("packer: interrupted; the same command continues where this one stopped\n")
    assert not any(said in errors for said in ("WARNING", "KeyboardInterrupt", "Dask Worker process")), errors
    assert not out.exists()


def test_a_cluster_of_its_own_a_scheduler_file_and_a_pack(
    cluster: Any, client: Any, tree: Path, whole: str, tmp_path: Path
) -> None:
    (tmp_path / "scheduler.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    own, by_file = tmp_path / "local.h5", tmp_path / "file.h5"
    places = [(own, "local:1"), (by_file, f"file:{tmp_path / 'scheduler.json'}")]
    lines = [["convert", tree, out, "--codec", "png", "--parts", 5, "--cluster", where] for out, where in places]
    convert(imagefolder_source(tree), tmp_path / "whole.lmdb", recipe=Recipe("png"))
    pack = ["convert", tmp_path / "whole.lmdb", tmp_path / "pack.h5", "--parts", 3, "--quiet", "--cluster"]
    # One process: Dask takes longer to import than a part to make.
    *first, again, quiet = packer_many([*lines, lines[-1], [*pack, cluster.scheduler_address]])
    for result, out in zip(first, (own, by_file), strict=True):
        assert result.returncode == 0, result.stderr
        assert digest(out) == whole
    assert again.stdout == f"{by_file}: done already\n"
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert digest(tmp_path / "pack.h5") == whole


def test_reports_of_new_nodes_arrive_while_progress_is_asked_for(tree: Path, tmp_path: Path) -> None:
    """Dask calls `note` on a thread of its own."""
    parts = 3000
    watch = _Watch(Partition(ConversionRequest(src=tree, dst=tmp_path / "out.lmdb", parts=parts)), 2 * parts)

    def report() -> None:
        for part in range(parts):
            for done in (1, 2):
                said = {"part": part, "host": f"node-{part}", "begin": 0, "done": done, "skipped": 0, "read": done}
                watch.note((time.time(), {**said, "worker": "tcp://"}))

    thread = threading.Thread(target=report)
    thread.start()
    seen = [watch.progress(1)]
    while thread.is_alive():
        seen.append(watch.progress(1))
    thread.join()
    last = watch.progress(1)
    assert (last.done, last.bytes_read, len(last.rates)) == (2 * parts, 2 * parts, parts)
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)


def test_dask_is_asked_for_in_words_that_install_it(tmp_path: Path) -> None:
    solid(tmp_path / "tree" / "a" / "1.png")
    code = "import sys; sys.modules['distributed'] = None; import packer._cli; packer._cli.main()"
    line = ["convert", tmp_path / "tree", tmp_path / "out.lmdb", "--parts", 1, "--cluster", "local:1"]
    result = python(code, *line, check=False)
    assert result.returncode == 1
    assert "--cluster needs Dask: pip install 'packer-images[cluster]' (" in result.stderr


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return how conversions end whose clusters cannot be used: one process, as Dask takes long to import."""
    root = tmp_path_factory.mktemp("refused")
    solid(root / "tree" / "a" / "1.png")
    places = ["", "local:0", "tcp://127.0.0.1:1", "file:/nowhere/missing", "slurm"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "1s")
        patch.setenv("DASK_JOBQUEUE__SLURM__CORES", "None")
        patch.setenv("DASK_JOBQUEUE__SLURM__MEMORY", "None")
        line = ["convert", root / "tree", "--parts", 1]
        folders = [root / str(number) for number in range(len(places))]
        for folder in folders:
            folder.mkdir()
        results = packer_many(
            [*line, folder / "pack.lmdb", "--cluster", where] for folder, where in zip(folders, places, strict=True)
        )
    return {**dict(zip(places, results, strict=True)), "left": list(map(os.listdir, folders))}


@pytest.mark.parametrize("where", ["tcp://127.0.0.1:1", "file:/nowhere/missing"])
def test_clusters_that_are_not_there(refused: dict[str, Any], where: str) -> None:
    assert refused[where].returncode == 1
    assert "Traceback" not in refused[where].stderr
    assert where in refused[where].stderr


@pytest.mark.parametrize(
    "where", ["", "bogus", "slurm:2", "file:", "local", "local:", "local:0", "local:-1", "local:abc"]
)
def test_what_names_no_cluster(tmp_path: Path, where: str) -> None:
    with pytest.raises(ClusterError, match="tcp://HOST:PORT"), open_client(where):
        pass


def test_a_queue_whose_jobs_nobody_described(refused: dict[str, Any]) -> None:
    pytest.importorskip("dask_jobqueue", reason="needs Dask: pip install dask-jobqueue")
    assert refused["slurm"].returncode == 1
    assert "; scripts/slurm/jobqueue.yaml is an example" in refused["slurm"].stderr
    assert "Traceback" not in refused["slurm"].stderr


def test_what_names_no_cluster_is_said_before_anything_is_done(refused: dict[str, Any]) -> None:
    for where in ("", "local:0"):
        assert refused[where].returncode == 2
        assert "local:N with N of 1 or more" in refused[where].stderr
    assert refused["left"][:2] == [[], []]
