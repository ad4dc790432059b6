"""Locks on files: they name their holder, are waited for, and are no link and no pipe."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

from tests.core.conftest import PRECIOUS
from vocable.core import locks
from vocable.core.locks import holding, lock_file, thread_lock, unlock_file
from vocable.core.storage import replacing
from vocable.errors import InUseError, VectorsError


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(tmp_path: Path, target: Path) -> None:
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(VectorsError, match=r"notes\.txt"):
        lock_file(tmp_path / "lock", "wait")
    assert target.read_text() == PRECIOUS


def test_a_lock_that_is_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "new")
    with pytest.raises(VectorsError):
        lock_file(tmp_path / "lock", "wait")
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_blocks_neither_a_lock_nor_a_look_at_a_leftover(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(VectorsError):
        lock_file(tmp_path / "lock", "wait")
    os.mkfifo(tmp_path / ".x.0.part")
    with holding(tmp_path / ".x.0.part"):
        pass
    with replacing(tmp_path / "x") as file:
        file.write(b"1")
    assert (tmp_path / "x").read_bytes() == b"1"


def test_a_lock_on_a_regular_file_holds(tmp_path: Path) -> None:
    descriptor = lock_file(tmp_path / "lock", "wait")
    assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} ")
    unlock_file(descriptor)
    assert (tmp_path / "lock").read_text() == ""


def test_a_lock_that_another_holds_is_refused_with_its_name_and_the_advice(tmp_path: Path) -> None:
    descriptor, began = lock_file(tmp_path / "lock", "wait"), time.monotonic()
    for patience in (0, 0.2):
        with pytest.raises(
            InUseError, match=rf"{tmp_path.name} is in use by process {os.getpid()} since .*: come later"
        ):
            lock_file(tmp_path / "lock", "come later", patience)
    assert 0.2 <= time.monotonic() - began < 2
    unlock_file(descriptor)


def test_a_lock_is_waited_for_and_the_wait_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "QUIET_SECONDS", 0.1)
    descriptor = lock_file(tmp_path / "lock", "wait")
    timer = Timer(0.5, unlock_file, [descriptor])
    timer.start()
    with caplog.at_level(logging.WARNING):
        unlock_file(lock_file(tmp_path / "lock", "wait", 30))
    timer.join()
    [message] = caplog.messages
    assert f"is in use by process {os.getpid()} since" in message
    assert message.endswith("waiting for at most 30 seconds")


def test_a_lock_of_a_holder_without_a_name_is_said_to_be_of_another_process(tmp_path: Path) -> None:
    descriptor = lock_file(tmp_path / "lock", "wait")
    os.truncate(tmp_path / "lock", 0)
    with pytest.raises(InUseError, match="in use by another process: wait"):
        lock_file(tmp_path / "lock", "wait")
    unlock_file(descriptor)


def test_a_file_system_without_locks_is_tolerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "flock", refuse)
    descriptors = [lock_file(tmp_path / "lock", "wait") for _ in range(2)]
    for descriptor in descriptors:
        unlock_file(descriptor)


def in_child(call: Callable[[], object]) -> bool:
    """Call a function in a forked child, and return whether it ended without an error."""
    child = os.fork()
    if not child:
        try:
            call()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_neither_holds_nor_releases_the_lock(tmp_path: Path) -> None:
    descriptor = lock_file(tmp_path / "lock", "wait")
    assert in_child(lambda: unlock_file(descriptor))
    with pytest.raises(InUseError):
        lock_file(tmp_path / "lock", "wait")
    assert not in_child(lambda: lock_file(tmp_path / "lock", "wait"))
    child = os.fork()
    if not child:
        time.sleep(5)
        os._exit(0)
    unlock_file(descriptor)
    unlock_file(lock_file(tmp_path / "lock", "wait"))  # at once: the child has none
    os.kill(child, 9)
    os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_finds_a_lock_between_threads_open() -> None:
    lock, taken, over = thread_lock(), Event(), Event()

    def hold() -> None:
        with lock:
            taken.set()
            over.wait()

    thread = Thread(target=hold)
    thread.start()
    taken.wait()

    def take_twice() -> None:
        assert lock.acquire(timeout=1)
        assert not lock.acquire(blocking=False)  # and it is still a lock

    assert in_child(take_twice)
    assert lock.locked()  # in the parent
    over.set()
    thread.join()
