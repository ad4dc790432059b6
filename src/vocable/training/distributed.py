"""Training on several processes: `torchrun --nproc_per_node N -m vocable train ...`, one process per device.

Only process 0 writes files. In a single process, without `torchrun`, nothing is exchanged and nothing waits.

Letters: b texts of this process, p processes.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import torch
from sentence_transformers.util.distributed import all_gather, get_rank, get_world_size
from torch import Tensor, distributed

from vocable.errors import ArgumentError, LostProcessError, VocableError

T = TypeVar("T")
USER_ERRORS = (VocableError, OSError)  # the command line shows them in one line
# The other processes wait while process 0 transfers a backbone, embeds a corpus or evaluates. If process 0 dies,
# torchrun ends them.
WAIT_FOR_FIRST = timedelta(days=30)
# All processes exchange vectors and gradients in every step: a process that does not arrive has stopped.
WAIT_FOR_STEP = timedelta(minutes=15)
LOST = ("timed out", "timeout", "connection closed", "connection reset")  # words in errors of the backends

_patient: distributed.ProcessGroup | None = None  # all processes, for waiting while process 0 works alone


def join() -> None:
    """Join the other processes of `torchrun`, once; without `torchrun`, do nothing."""
    global _patient
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ or distributed.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=WAIT_FOR_STEP)
    _patient = distributed.new_group(backend="gloo", timeout=WAIT_FOR_FIRST)
    atexit.register(distributed.destroy_process_group)


def is_first() -> bool:
    return bool(get_rank() == 0)


def count() -> int:
    return int(get_world_size())


def wait() -> None:
    """Wait for all processes, however long it takes."""
    if count() > 1:
        distributed.barrier(group=_patient)


@contextmanager
def naming_lost_processes() -> Iterator[None]:
    """Raise `LostProcessError` if another process ends within the context, or misses a step for `WAIT_FOR_STEP`."""
    try:
        yield
    except RuntimeError as error:
        if count() == 1 or not any(sign in str(error).lower() for sign in LOST):
            raise
        waited = f"{WAIT_FOR_STEP.total_seconds() / 60:.0f} minutes"
        message = f"lost contact with another training process for {waited}, or it has ended: check its output"
        raise LostProcessError(f"{message}; the same command resumes from the last checkpoint") from error


@contextmanager
def first_alone() -> Iterator[None]:
    """Run the block in process 0, then in the others, which find its files; all raise the user errors of process 0."""
    # All others wait here for process 0, which sends its error, or None, when it leaves the block.
    if not is_first() and (error := from_first(None)) is not None:
        raise error
    try:
        yield
    except USER_ERRORS as error:
        if is_first():
            from_first(error)
        raise
    if is_first():
        from_first(None)


def by_first(make: Callable[[], T]) -> T:
    """Call `make` in process 0 and return its result in all processes; errors as in `first_alone`."""
    with first_alone():
        result = make() if is_first() else None
    return cast(T, from_first(result))


def from_first(value: object) -> Any:
    """Return the value of process 0 in all processes."""
    box = [value]
    if count() > 1:
        distributed.broadcast_object_list(box, src=0, group=_patient)
    return box[0]


def check_shared(name: str, size: int, error: type[VocableError] = ArgumentError) -> None:
    """Raise an error if the processes cannot share a batch of this size equally."""
    if size % count():
        raise error(f"{name}: {size} examples cannot be shared equally by {count()} processes")


@contextmanager
def common_folder() -> Iterator[Path]:
    """Yield a temporary folder that all processes of a machine share; it is removed when all have left it."""
    with TemporaryDirectory(prefix="vocable-") as folder:
        yield Path(from_first(folder))
        wait()


def weighted_by_rows(mean: Tensor, rows: int) -> Tensor:
    """Weight a mean over this process's rows so that its mean over the processes is the mean over all rows."""
    if count() == 1:
        return mean
    all_rows = torch.tensor(float(rows), device=mean.device)
    distributed.all_reduce(all_rows)
    return mean * (rows * count() / all_rows)


def gather_rows(rows: Tensor) -> Tensor:
    """Return the rows [b, ...] of all processes, [p b, ...], in order, with gradients.

    Each process computes the loss of the whole batch, so that the rows of one process receive p times the gradient;
    `DistributedDataParallel` divides by p. The result is the gradient of a single process with the whole batch.
    """
    return rows if count() == 1 else all_gather(rows, with_grad=rows.is_floating_point())
