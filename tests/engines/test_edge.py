"""The embedded store: its lock, its seal against damage, full disks, and folders that cannot be written."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.conftest import copy_store
from vocable.core import seal
from vocable.data import Document
from vocable.engines import edge_shard
from vocable.engines.edge import EdgeStore
from vocable.errors import InUseError, NoSpaceError, VectorsError

V, N = 40, 700  # more documents than one write of the log holds
SPACES = {"sparse": V, "bm25": 0}


def vectors(documents: list[Document]) -> dict[str, csr_array]:
    rows = np.zeros((len(documents), V), np.float32)
    for row, document in enumerate(documents):
        rows[row, [len(document.text) % V, hash(document.id) % V]] = 1 + row % 5
    return {"sparse": csr_array(rows), "bm25": csr_array(rows)}


def made(folder: Path, count: int = N) -> Path:
    store = EdgeStore.create(str(folder), SPACES, {"made": True})
    documents = [Document(f"d{number}", "x" * (number % 50 + 1), "", {"n": number}) for number in range(count)]
    store.upsert(documents, vectors(documents))
    store.optimize()
    store.close()
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("original") / "store")


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return copy_store(original, tmp_path / "store")


@contextmanager
def in_another(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run code in another Python, up to the line that it prints."""
    code = f"import sys\nfrom vocable.engines.edge import EdgeStore\n{code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        if process.poll() is None:
            process.communicate()


def opened_count(folder: Path) -> int:
    store = EdgeStore.open(str(folder))
    count = len(store)
    store.close()
    return count


@pytest.mark.parametrize("how", ["store.close()", "del store", "pass"])
def test_a_store_is_free_only_when_all_of_it_is_on_disk(store: Path, how: str) -> None:
    more = [Document(f"e{number}", "x" * (number % 50 + 1)) for number in range(N)]
    (store.parent / "more.json").write_text(json.dumps([[one.id, one.text] for one in more]))
    code = (
        "import json\n"
        "from tests.engines.test_edge import Document, vectors\n"
        "more = [Document(*one) for one in json.load(open(sys.argv[2]))]\n"
        "store = EdgeStore.open(sys.argv[1])\n"
        "store.upsert(more, vectors(more))\n"
        "print('written', flush=True)\n"
        f"{how}\n"
    )
    with in_another(code, store, store.parent / "more.json"):
        assert opened_count(store) == 2 * N  # which waits for the lock
    assert opened_count(store) == 2 * N


def test_a_store_that_is_open_elsewhere_is_in_use(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_shard, "PATIENCE", 0.2)
    code = "store = EdgeStore.open(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()"
    with in_another(code, store) as other:
        with pytest.raises(InUseError, match=str(other.pid)):
            EdgeStore.open(str(store))
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert opened_count(store) == N


def test_a_forked_child_neither_seals_nor_closes_the_store(store: Path) -> None:
    code = (
        "import gc, os\nstore = EdgeStore.open(sys.argv[1])\nstore.delete(['d1'])\n"
        "child = os.fork()\n"
        "if not child:\n    store.close()\n    del store\n    gc.collect()\n    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "from pathlib import Path\n"
        "print(Path(sys.argv[1], 'seal.json').exists(), store.delete(['d2']), flush=True)\n"
        "os._exit(1)"
    )
    command = [
        sys.executable,
        "-c",
        f"import sys\nfrom vocable.engines.edge import EdgeStore\n{code}",
        str(store),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False 1\n", done.stderr
    assert opened_count(store) == N - 2


def test_a_closed_store_says_so(store: Path) -> None:
    opened = EdgeStore.open(str(store))
    opened.close()
    for call in (lambda: len(opened), lambda: opened.documents(["d1"]), lambda: opened.delete(["d1"])):
        with pytest.raises(VectorsError):
            call()
    opened.close()


@pytest.mark.slow
def test_reading_leaves_the_seal_as_it_is(store: Path) -> None:
    opened_count(store)  # the first opening after changes settles the engine's files
    before = (store / seal.SEAL).read_bytes()
    for _ in range(6):  # the engine writes the keys of its settings in another order each time
        code = "store = EdgeStore.open(sys.argv[1])\nprint(len(store), flush=True)"
        with in_another(code, store):
            pass
        assert (store / seal.SEAL).read_bytes() == before
    code = "import os\nstore = EdgeStore.open(sys.argv[1])\nprint(len(store), flush=True)\nos._exit(1)"
    with in_another(code, store):
        pass
    assert opened_count(store) == N


def test_a_store_whose_process_was_killed_is_sealed_when_it_is_closed(store: Path) -> None:
    code = (
        "import os\nstore = EdgeStore.open(sys.argv[1])\nstore.delete(['d1', 'd2'])\n"
        "print('deleted', flush=True)\nos._exit(1)"
    )
    with in_another(code, store):
        pass
    assert not (store / seal.SEAL).exists()
    assert opened_count(store) == N - 2
    assert json.loads((store / seal.SEAL).read_text())["documents"] == N - 2
    assert opened_count(store) == N - 2


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    found = re.compile(rb"[^\0]").search(content, len(content) // 3)
    content[found.start() if found else 0] ^= 4
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped": flipped,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "gone": lambda path: path.unlink(),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_any_file_is_noticed(store: Path, damage: str) -> None:
    sealed = json.loads((store / seal.SEAL).read_text())["files"]
    files = [store / "shard" / name for name in sealed if name != "wal/open-2"]  # which is empty still
    assert len(files) > 15
    for path in files:
        before, status = path.read_bytes(), path.stat()
        DAMAGES[damage](path)
        with pytest.raises(VectorsError, match=path.name):
            EdgeStore.open(str(store))
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(before)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert opened_count(store) == N


def test_a_copy_with_other_times_is_whole(store: Path) -> None:
    for path in store.rglob("*"):
        os.utime(path, (1, 1))
    assert opened_count(store) == N


def test_what_a_killed_write_of_the_engine_leaves_is_no_damage(store: Path) -> None:
    (store / "shard" / ".atomicwriteK52Th").mkdir()
    (store / "shard" / ".atomicwriteK52Th" / "tmpfile.tmp").write_text("{")
    assert opened_count(store) == N


@pytest.mark.parametrize("step", [-1, 1])
def test_an_older_or_newer_format_is_refused(store: Path, step: int) -> None:
    record = json.loads((store / "store.json").read_text())
    (store / "store.json").write_text(json.dumps(record | {"format": record["format"] + step}))
    with pytest.raises(VectorsError, match="another version"):
        EdgeStore.open(str(store))


def test_a_disk_with_too_little_room_is_refused_before_anything_is_written(
    store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened, one = EdgeStore.open(str(store)), [Document("new", "x")]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(edge_shard.shutil, "disk_usage", lambda _: usage._replace(free=50 << 20))
    for call in (lambda: opened.upsert(one, vectors(one)), lambda: opened.delete(["d1"])):
        with pytest.raises(NoSpaceError):
            call()
    assert opened.documents(["new", "d1"])[0] is None
    assert len(opened) == N
    with pytest.raises(NoSpaceError):
        EdgeStore.create(str(tmp_path / "other"), SPACES, {})
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr(edge_shard.shutil, "disk_usage", lambda _: usage._replace(free=1 << 30))
    opened.upsert(one, vectors(one))  # and the files of the shard have their room
    held = [path.stat() for path in (store / "shard").rglob("*") if path.is_file()]
    assert sum(status.st_blocks * 512 < status.st_size for status in held) == 0
    opened.close()
    assert opened_count(store) == N + 1


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_names_the_way_out(
    store: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(reason, os.strerror(reason), str(store))

    monkeypatch.setattr(edge_shard, "lock_file", refuse)
    with pytest.raises(VectorsError):
        EdgeStore.open(str(store))
