"""Several processes that train one model: `torchrun --nproc_per_node N -m vocable train ...`, one process a device.

Process 0 alone writes what all read. In one process without `torchrun` nothing here does anything.

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

MENDABLE = (VocableError, OSError)  # what the command line lets a user mend
# The others wait while process 0 transfers a backbone, embeds a corpus or evaluates; if it dies, torchrun ends them.
PATIENCE = timedelta(days=30)
# Vectors and gradients are exchanged in every step, by all: whoever does not come has stopped.
STEP = timedelta(minutes=15)
LOST = ("timed out", "timeout", "connection closed", "connection reset")  # in what the backends raise

_patient: distributed.ProcessGroup | None = None  # the same processes, for what process 0 does alone


def join() -> None:
    """Join the processes that `torchrun` started, if it started this one and that has not been done."""
    global _patient
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ or distributed.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=STEP)
    _patient = distributed.new_group(backend="gloo", timeout=PATIENCE)
    atexit.register(distributed.destroy_process_group)


def is_first() -> bool:
    """Whether this is process 0, or the only one."""
    return bool(get_rank() == 0)


def count() -> int:
    """How many processes there are."""
    return int(get_world_size())


def wait() -> None:
    """Go on only when all processes have come here, however long it takes."""
    if count() > 1:
        distributed.barrier(group=_patient)


@contextmanager
def together() -> Iterator[None]:
    """In the block all processes exchange vectors and gradients; one that the others have lost is a `LostProcessError`.

    After `STEP`, or at once where the other has ended.
    """
    try:
        yield
    except RuntimeError as error:
        if count() == 1 or not any(sign in str(error).lower() for sign in LOST):
            raise
        waited = f"{STEP.total_seconds() / 60:.0f} minutes"
        message = f"another process has ended, or has not come to a step within {waited}: see what it says"
        raise LostProcessError(f"{message}; the same command goes on from the last checkpoint") from error


@contextmanager
def first_alone() -> Iterator[None]:
    """The block is carried out by process 0, then by the others, who find what it has made.

    A mistake of the user's that process 0 meets in it is raised in the others, too: they would wait for ever.
    """
    if not is_first() and (error := from_first(None)) is not None:
        raise error
    try:
        yield
    except MENDABLE as error:
        if is_first():
            from_first(error)
        raise
    if is_first():
        from_first(None)


def by_first(make: Callable[[], T]) -> T:
    """What process 0 makes, in all of them; errors as in `first_alone`."""
    made: Any = None
    with first_alone():
        if is_first():
            made = make()
    return cast(T, from_first(made))


def from_first(value: Any) -> Any:
    """What process 0 has for the value, in all of them."""
    box = [value]
    if count() > 1:
        distributed.broadcast_object_list(box, src=0, group=_patient)
    return box[0]


def shared(size: int) -> int:
    """A batch's `size`, of all processes together; `ArgumentError` if they cannot share it equally."""
    if size % count():
        raise ArgumentError(f"batch_size: {size} examples cannot be shared equally by {count()} processes")
    return size


@contextmanager
def common_folder() -> Iterator[Path]:
    """A temporary folder of process 0, on one machine, for all; it is removed when all have left it."""
    with TemporaryDirectory(prefix="vocable-") as folder:
        yield Path(from_first(folder))
        wait()


def of_all(mean: Tensor, rows: int) -> Tensor:
    """A `mean` over this process' rows, weighted so that the mean of all processes' is that over all rows."""
    if count() == 1:
        return mean
    every = torch.tensor(float(rows), device=mean.device)
    distributed.all_reduce(every)
    return mean * (rows * count() / every)


def gathered(rows: Tensor) -> Tensor:
    """The rows [b, ...] of all processes, [p b, ...], in the order of the processes; gradients flow to all of them.

    Each process computes the loss of the whole batch and hands back its gradients to everybody's rows. What arrives at
    the rows of one is p times the gradient, and `DistributedDataParallel` divides by p when it averages: the gradient
    is that of one process with the whole batch.
    """
    return rows if count() == 1 else all_gather(rows, with_grad=rows.is_floating_point())
