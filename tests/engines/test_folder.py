"""An index in a folder: its files, its commit, damage of each of them, full disks, and folders of other users."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.engines.reference import SETTINGS, SPACES, LiveDocuments, fill, make_documents, make_queries, make_vectors
from vocable.core.locks import holding
from vocable.data import Document
from vocable.engines import folder as module
from vocable.engines.folder import COMMIT_FORMAT, FolderStore
from vocable.engines.protocols import engine_of
from vocable.errors import ArgumentError, NoSpaceError, VectorsError

COMMIT = "commit.json"
IDS = [f"d{number:02}" for number in range(62)]


@pytest.fixture
def folder(tmp_path: Path, live: LiveDocuments) -> Path:
    """A folder of three segments, two of which have deletions."""
    store = FolderStore.create(str(tmp_path / "index"), SPACES, SETTINGS)
    for number, ids in enumerate((IDS[:50], IDS[50:59], IDS[59:])):
        fill(store, live, ids, number)
    for ids in (["d01", "d52"], ["d03"]):
        assert store.delete(ids) == live.delete(ids)
    store.close()
    assert kinds(tmp_path / "index") == ["commit", "gone", "gone", "lock", "segment", "segment", "segment"]
    return tmp_path / "index"


def kinds(folder: Path) -> list[str]:
    """Return the kinds of the files in a folder."""
    names = (path.name for path in folder.iterdir())
    return sorted("commit" if name == COMMIT else re.sub(r"\d+\.|-\d+", "", name) for name in names)


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything that a change of a file would change."""
    files = {path.name: path for path in folder.iterdir() if path.name != "lock"}
    return {name: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for name, path in files.items()}


def check(folder: Path, live: LiveDocuments) -> None:
    """Open a folder, and compare what it answers with the documents that it should have."""
    store = FolderStore.open(str(folder))
    live.check(store, make_queries(1))
    store.close()


def test_a_folder_has_its_commit_and_the_files_that_the_commit_names(folder: Path, live: LiveDocuments) -> None:
    check(folder, live)
    record = json.loads((folder / COMMIT).read_text())
    assert (record["engine"], record["format"], record["number"]) == ("folder", COMMIT_FORMAT, 5)
    assert (record["settings"], record["spaces"]) == (SETTINGS, SPACES)
    named = {name for segment in record["segments"] for name in (segment["name"], segment["gone"]) if name}
    assert named | {COMMIT, "lock"} == {path.name for path in folder.iterdir()}
    assert (folder / "lock").read_bytes() == b""
    assert engine_of(folder) == (FolderStore, str(folder))
    store = FolderStore.open(str(folder))
    assert store.nbytes == sum(path.stat().st_size for path in folder.iterdir())


def test_reading_and_changes_of_nothing_write_no_file(folder: Path, live: LiveDocuments) -> None:
    before = state(folder)
    check(folder, live)
    store = FolderStore.open(str(folder))
    store.delete(["unknown", "d01"])
    store.configure(dict(store.settings))
    store.upsert([], make_vectors(0, 0))
    assert store.check() == 3
    store.close()
    assert state(folder) == before


def test_a_commit_writes_new_segments_alone(folder: Path, live: LiveDocuments) -> None:
    before = state(folder)
    store = FolderStore.open(str(folder))
    fill(store, live, ["new"], 7)
    after = state(folder)
    segments = {name: value for name, value in before.items() if name.endswith(".segment")}
    kept = {name: after[name] for name in segments if name in after}
    assert kept == {name: segments[name] for name in kept}
    assert len(kept) >= 2  # the smallest one may be merged with the new one
    assert max(after.keys() - before.keys() - {COMMIT}) > max(segments)
    live.check(store, make_queries(1))
    store.close()


@pytest.mark.parametrize(
    "change", [lambda s: s.upsert(make_documents(["d05"], 3), make_vectors(1, 3)), lambda s: s.delete(["d05"])]
)
def test_a_change_replaces_the_deletions_of_the_segments_that_it_concerns(
    folder: Path, change: Callable[[FolderStore], object]
) -> None:
    before = {path.name for path in folder.glob("*.gone-*")}
    store = FolderStore.open(str(folder))
    change(store)
    after = {path.name for path in folder.glob("*.gone-*")}
    assert len(after) == 2
    assert len(before & after) == 1
    store.close()


def test_what_a_killed_writer_left_is_removed_by_the_next_and_other_files_stay(
    folder: Path, live: LiveDocuments
) -> None:
    for name in ("000099.segment", "000001.gone-99", f".{COMMIT}.0123abcd", "notes.txt", ".hidden", "7.segment"):
        (folder / name).write_bytes(b"half")
    check(folder, live)
    store = FolderStore.open(str(folder))
    fill(store, live, ["new"], 5)
    names = {path.name for path in folder.iterdir()}
    assert {"notes.txt", ".hidden", "7.segment"} <= names
    assert names.isdisjoint({"000099.segment", "000001.gone-99", f".{COMMIT}.0123abcd"})
    live.check(store, make_queries(1))
    store.close()


def test_the_number_of_a_leftover_segment_is_taken_again(folder: Path, live: LiveDocuments) -> None:
    following = json.loads((folder / COMMIT).read_text())["next"]
    (folder / f"{following:06}.segment").write_bytes(b"half")
    store = FolderStore.open(str(folder))
    fill(store, live, ["new"], 5)
    store.close()
    check(folder, live)


# ---- damage


def opened(folder: Path) -> str:
    """Open a folder, and return the message of its refusal."""
    with pytest.raises(VectorsError) as caught:
        FolderStore.open(str(folder))
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_commit_that_is_cut_or_changed_anywhere_is_refused(folder: Path, live: LiveDocuments) -> None:
    whole = (folder / COMMIT).read_bytes()
    for length in range(0, len(whole) - 1, 3):
        (folder / COMMIT).write_bytes(whole[:length])
        assert f"{COMMIT}: damaged" in opened(folder)
    for place in range(0, len(whole), 2):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 7
        (folder / COMMIT).write_bytes(changed)
        assert re.search(rf"{COMMIT}: damaged|stored in format \d+, not {COMMIT_FORMAT}", opened(folder))
    (folder / COMMIT).write_bytes(whole)
    check(folder, live)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b'{"format": "3"}'])
def test_a_commit_that_is_something_else_is_refused(folder: Path, content: bytes) -> None:
    (folder / COMMIT).write_bytes(content)
    assert f"{COMMIT}: damaged" in opened(folder)


@pytest.mark.parametrize("step", [-1, 1])
def test_an_older_or_newer_format_is_refused(folder: Path, step: int) -> None:
    record = json.loads((folder / COMMIT).read_text())
    (folder / COMMIT).write_text(json.dumps(record | {"format": COMMIT_FORMAT + step}))
    assert (
        f"stored in format {COMMIT_FORMAT + step}, not {COMMIT_FORMAT}: made by another version of vocable"
        in opened(folder)
    )


@pytest.mark.parametrize(
    ("name", "message"), [("store.json", "index again"), ("notes.txt", "make one with vocable index")]
)
def test_a_folder_without_a_commit_says_what_to_do(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / name).write_text("{}")
    assert message in opened(tmp_path / "old")


def test_a_folder_of_another_engine_is_refused(folder: Path) -> None:
    from vocable.engines.seismic import SeismicStore

    with pytest.raises(VectorsError):
        SeismicStore.open(str(folder))


def files(folder: Path) -> list[Path]:
    """Return the segments and deletions."""
    return sorted(path for path in folder.iterdir() if path.name not in (COMMIT, "lock"))


def flip(path: Path) -> None:
    """Change a bit of the last byte that is not 0, which is of an array."""
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) - 1] ^= 4
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": flip,
    "a link": lambda path: (
        path.rename(path.parent.parent / "elsewhere"),
        path.symlink_to(path.parent.parent / "elsewhere"),
    ),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_any_file_is_noticed_by_its_name(folder: Path, damage: str) -> None:
    whole = {path: path.read_bytes() for path in files(folder)}
    for path, content in whole.items():
        DAMAGES[damage](path)
        assert path.name in opened(folder)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path.write_bytes(content)
    FolderStore.open(str(folder)).close()


def test_files_of_another_commit_are_refused(folder: Path) -> None:
    segments = [path for path in files(folder) if path.suffix == ".segment"]
    deletions = [path for path in files(folder) if path not in segments]
    for (first, second), message in ((segments[:2], "not the segment of"), (deletions[:2], "not the deletions of")):
        contents = first.read_bytes(), second.read_bytes()
        first.write_bytes(contents[1])
        assert f"{first.name}: the index is damaged: {message} this commit" in opened(folder)
        first.write_bytes(contents[0])
    deletions[0].write_bytes(segments[0].read_bytes())
    assert f"{deletions[0].name}: expected an index of kind 'gone'" in opened(folder)


@pytest.mark.parametrize("name", [COMMIT, "lock"])
@pytest.mark.parametrize("special", ["link", "pipe", "folder"])
def test_a_link_pipe_or_folder_in_place_of_commit_and_lock_is_refused(
    folder: Path, live: LiveDocuments, name: str, special: str
) -> None:
    elsewhere = folder.parent / "elsewhere"
    shutil.copy(folder / name, elsewhere)
    content = elsewhere.read_bytes()
    (folder / name).unlink()
    {"link": lambda path: path.symlink_to(elsewhere), "pipe": os.mkfifo, "folder": os.mkdir}[special](folder / name)
    if name == COMMIT:
        assert re.search(rf"{COMMIT}.*(not a regular file|cannot be opened)", opened(folder))
        return
    check(folder, live)  # readers need no lock
    store, before = FolderStore.open(str(folder)), state(folder)
    with pytest.raises((VectorsError, ArgumentError), match="lock"):
        store.delete(["d05"])
    assert (state(folder), elsewhere.read_bytes()) == (before, content)
    store.close()


def test_damage_after_the_opening_is_said_and_what_is_open_stays(folder: Path, live: LiveDocuments) -> None:
    store, whole = FolderStore.open(str(folder)), (folder / COMMIT).read_bytes()
    view = store.pinned()
    (folder / COMMIT).write_bytes(whole[:100])
    for call in (lambda: len(store), lambda: store.delete(["d05"])):
        with pytest.raises(VectorsError):
            call()
    live.check(view, make_queries(1))
    (folder / COMMIT).write_bytes(whole)
    live.check(store, make_queries(1))
    fill(store, live, ["new"], 3)
    live.check(store, make_queries(1))
    store.close()


def test_a_check_compares_files_that_were_verified_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vocable.core.verified.SETTLED", 0)
    store = FolderStore.open(str(folder))
    assert store.check() == 3
    monkeypatch.setattr("vocable.core.verified.Verified.__contains__", lambda *_: True)  # as if its times were the same
    path = min(folder.glob("*.segment"))
    content = path.read_bytes()
    place = content.index(store.documents(["d00"])[0].text.encode())  # type: ignore[union-attr]
    path.write_bytes(content[:place] + b"\0" + content[place + 1 :])
    FolderStore.open(str(folder)).close()
    monkeypatch.undo()
    with pytest.raises(VectorsError, match=f"{path.name}: damaged: texts_bytes"):
        store.check()
    store.close()


# ---- making and removing


def test_a_place_that_is_taken_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (folder, tmp_path / "file"):
        with pytest.raises(ArgumentError):
            FolderStore.create(str(path), SPACES, {})
    (tmp_path / "empty").mkdir()
    assert len(FolderStore.create(str(tmp_path / "empty"), SPACES, {})) == 0
    assert len(FolderStore.create(str(tmp_path / "deep" / "new"), SPACES, {})) == 0


def test_a_dropped_folder_is_gone(folder: Path) -> None:
    FolderStore.open(str(folder)).drop()
    assert not folder.exists()


def test_a_place_opened_twice_and_closed_once_stays_open(folder: Path, live: LiveDocuments) -> None:
    first, second = (FolderStore.open(str(folder)) for _ in range(2))
    first.close()
    first.close()
    live.check(second, make_queries(1))
    fill(second, live, ["new"], 3)
    live.check(second, make_queries(1))
    with pytest.raises(VectorsError):
        len(first)
    second.close()


# ---- full disks


class FailingFile:
    """A file whose n-th write of a test finds no space."""

    def __init__(self, file: Any, count: Callable[[], None]) -> None:
        self.file, self.count = file, count

    def write(self, content: Any) -> int:
        self.count()
        return int(self.file.write(content))

    def __enter__(self) -> FailingFile:
        self.file.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        self.file.__exit__(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def failing_at(step: str, number: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Let the n-th of these steps find no space; the result tells whether one did."""
    left = number

    def count() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    call = getattr(os, step, None)
    opened_for_writing = os.O_WRONLY | os.O_RDWR

    def counted(*given: Any, **named: Any) -> Any:
        if step != "open" or given[1] & opened_for_writing:
            count()
        assert call is not None
        return call(*given, **named)

    if step == "write":
        fdopen = os.fdopen
        monkeypatch.setattr(os, "fdopen", lambda *given: FailingFile(fdopen(*given), count))
    else:
        monkeypatch.setattr(os, step, counted)
    return lambda: left < 0


@pytest.mark.parametrize(
    ("step", "every", "least"), [("fsync", 1, 5), ("open", 1, 4), ("write", 7, 6), ("replace", 1, 1)]
)
def test_a_full_disk_at_any_step_leaves_the_last_commit(
    folder: Path, live: LiveDocuments, step: str, every: int, least: int
) -> None:
    """A change that adds, replaces, deletes and merges: its n-th step finds no space, for every n."""
    for number in range(0, 1000, every):
        copy, after = folder.with_name(f"copy-{number}"), LiveDocuments()
        shutil.copytree(folder, copy)
        after.rows = dict(live.rows)
        store, reader = FolderStore.open(str(copy)), FolderStore.open(str(copy))

        def change(store: FolderStore = store, after: LiveDocuments = after) -> None:
            with store.changing():
                fill(store, after, ["d04", "d55", "new", "newer"], 9)
                store.delete(["d06"])
                after.delete(["d06"])

        with pytest.MonkeyPatch.context() as patched:
            has_failed = failing_at(step, number, patched)
            message = refusal(change)
        assert (message is None) == (not has_failed())
        if message is not None:
            assert message.startswith(str(copy))
            assert "no space left on the disk" in message
        # Only the last call of fsync, which forces the name of the new commit to disk, comes after it.
        is_before = len(reader) == len(live.rows)
        assert is_before == has_failed() or step == "fsync"
        assert len(store) == len(reader)
        (live if is_before else after).check_content(FolderStore.open(str(copy)))
        change()
        check(copy, after)
        assert set(kinds(copy)) <= {"commit", "gone", "lock", "segment"}
        store.close()
        reader.close()
        shutil.rmtree(copy)
        if not has_failed():
            break
    assert number // every >= least


def refusal(change: Callable[[], object]) -> str | None:
    """Return the message if a change finds no space."""
    try:
        change()
    except NoSpaceError as error:
        return str(error)
    return None


def test_a_disk_that_is_full_at_the_making_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_at("write", 0, monkeypatch)
    with pytest.raises(NoSpaceError):
        FolderStore.create(str(tmp_path / "index"), SPACES, {})
    monkeypatch.undo()
    assert not (tmp_path / "index").exists() or not list((tmp_path / "index").iterdir())
    FolderStore.create(str(tmp_path / "index"), SPACES, {}).close()


# ---- other users and read-only folders


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_folder_that_cannot_be_written_is_searched(
    folder: Path, live: LiveDocuments, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    opened_file = os.open

    def refuse(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(reason, os.strerror(reason), path)
        return opened_file(path, flags, *given, **named)

    monkeypatch.setattr(os, "open", refuse)
    store = FolderStore.open(str(folder))
    live.check(store, make_queries(1))
    assert store.check() == 3
    with pytest.raises(ArgumentError, match=f"{folder} cannot be changed by this user: {os.strerror(reason)}"):
        store.delete(["d05"])
    live.check(store, make_queries(1))
    store.close()


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may enter."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root becomes another user")
def test_another_user_searches_and_changes_nothing(folder: Path, live: LiveDocuments, public: Path) -> None:
    shutil.copytree(folder, public / "index")
    (public / "index").chmod(0o555)
    (public / "index" / "lock").unlink()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setgid(65_534)
            os.setuid(65_534)
            store = FolderStore.open(str(public / "index"))
            live.check(store, make_queries(1))
            try:
                store.delete(["d05"])
            except ArgumentError as error:
                status = 0 if "cannot be changed by this user" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    check(public / "index", live)


def test_a_lock_that_another_program_holds_on_the_folder_itself_is_no_obstacle(folder: Path) -> None:
    store = FolderStore.open(str(folder))
    with holding(folder):
        assert store.delete(["d05"]) == 1
    store.close()


def test_settings_and_documents_are_one_commit(folder: Path) -> None:
    store = FolderStore.open(str(folder))
    number = json.loads((folder / COMMIT).read_text())["number"]
    with store.changing():
        store.configure({**SETTINGS, "fields": ["ü"]})
        store.upsert(make_documents(["new"], 1), {"sparse": csr_array(np.ones((1, 30))), "dense": np.ones((1, 4))})
    record = json.loads((folder / COMMIT).read_text())
    assert (record["number"], record["settings"]["fields"]) == (number + 1, ["ü"])
    assert dict(FolderStore.open(str(folder)).settings_now()) == {**SETTINGS, "fields": ["ü"]}
    assert module.read_commit(store._directory).settings == store.settings
    store.close()


def test_every_check_compares_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vocable.core.verified.SETTLED", 0)
    place = str(tmp_path / "index")
    store = FolderStore.create(place, {"sparse": 3}, {})
    store.upsert([Document("d1", "a text")], {"sparse": csr_array(np.ones((1, 3), np.float32))})
    store.close()
    for _ in range(2):
        FolderStore.open(place).close()  # the second one finds the files verified
    verified, read = [], module.read_arrays

    def noting(*given: Any, verify: bool = True) -> Any:
        verified.append(verify)
        return read(*given, verify=verify)

    monkeypatch.setattr(module, "read_arrays", noting)
    with closing(FolderStore.open(place)) as opened:
        assert verified == [False]
        assert [opened.check() for _ in range(3)] == [1, 1, 1]
    assert verified == [False, True, True, True]
