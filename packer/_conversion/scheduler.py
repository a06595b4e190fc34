"""Connecting to a Dask cluster, or starting one."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from packer._storage.interrupts import interrupts_held
from packer._storage.limits import available_cpus
from packer.errors import ClusterError, MissingDependencyError, pip_install, printable

__all__ = ["JOB_QUEUES", "check_address", "import_dask", "open_client"]

JOB_QUEUES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
"""What `dask-jobqueue` calls each of them."""


def check_address(where: str) -> None:
    """Raise ClusterError where `where` is not of a form that `open_client` knows."""
    kind, _, rest = where.partition(":")
    if kind == "local":
        known = re.fullmatch("[1-9][0-9]*", rest, re.ASCII) is not None
    elif kind == "file":
        known = rest != ""
    else:
        known = where in JOB_QUEUES or re.fullmatch(r"\w+://\S+", where) is not None
    if not known:
        raise ClusterError(
            f"--cluster {where!r} is not tcp://HOST:PORT, file:SCHEDULER.json, local:N with N of 1 or more, "
            f"or one of {', '.join(JOB_QUEUES)}"
        )


@contextlib.contextmanager
def open_client(where: str, jobs: int | None = None) -> Iterator[Any]:
    """Connect to a Dask cluster, or start one that ends with the block; yield a `distributed.Client`.

    Parameters
    ----------
    where : str
        The address of a scheduler (``tcp://host:8786``); ``file:PATH`` of its scheduler file; ``local:N``, for N
        processes on this machine; or one of `JOB_QUEUES`, whose jobs `dask-jobqueue`'s own configuration describes.
    jobs : int, optional
        How many jobs to submit to a queue.

    Raises
    ------
    ClusterError
        If there is no such cluster.
    MissingDependencyError
    """
    check_address(where)
    distributed = import_dask("distributed")
    kind, _, rest = where.partition(":")
    with contextlib.ExitStack() as opened:
        try:
            if kind == "local":
                workers = int(rest)
                with interrupts_held():  # workers would end with tracebacks before they are told to end
                    target = opened.enter_context(
                        distributed.LocalCluster(
                            n_workers=workers,
                            threads_per_worker=max(1, available_cpus() // workers),
                            dashboard_address=":0",
                            silence_logs=40,  # logging.ERROR; that parts were cancelled, or failed, is said here
                        )
                    )
            elif where in JOB_QUEUES:
                target = opened.enter_context(getattr(import_dask("dask_jobqueue"), JOB_QUEUES[where])())
                target.scale(jobs=jobs or 1)
            else:
                target = None
            if target is not None:
                client = distributed.Client(target)
            elif kind == "file":
                os.stat(rest)  # for Dask waits until it is there
                client = distributed.Client(scheduler_file=rest)
            else:
                client = distributed.Client(where)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            advice = ""
            if where in JOB_QUEUES:
                advice = ". Say in ~/.config/dask/jobqueue.yaml what a job is, as scripts/slurm/jobqueue.yaml does"
            raise ClusterError(f"--cluster {printable(where)}: {error}{advice}") from error
        yield opened.enter_context(client)


def import_dask(module: str) -> ModuleType:
    """Import a module of Dask's; MissingDependencyError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"--cluster needs Dask: {pip_install('cluster')} ({error})") from error
