"""Work that resumes: who may go on with a work folder, and what is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from vocable.core.fingerprint import fingerprint
from vocable.core.storage import (
    check_file,
    finish,
    finished,
    partial_of,
    read_record,
    refuse_taken,
    resumable,
    write_record,
)
from vocable.errors import ArgumentError, ModelError, VectorsError

WORKER = """
import os, signal, sys
from pathlib import Path
from vocable.core.storage import resumable
with resumable(sys.argv[1], {"model": "m"}) as work:
    (work / "part").write_text("half")
    if not os.fork():  # a child that outlives its parent and, once it runs, does not keep the lock
        print(os.getpid(), flush=True)
    signal.pause()
"""


@dataclass
class Counts:
    parts: int = 0
    last: str = ""


class Pair(NamedTuple):
    low: float
    high: float


@dataclass
class Model:
    counts: Counts
    names: list[str]


def start(output: Path) -> tuple[subprocess.Popen[str], int]:
    """A process that has the lock, and its child's id."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, output], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def enter(output: Path, settings: dict[str, Any], **options: Any) -> None:
    with resumable(output, settings, **options) as work:
        (work / "part").touch()


def test_the_same_settings_go_on_and_others_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "out"
    settings = {"model": "m", "top_k": None, "shard": (1, 1)}
    enter(output, settings)
    with resumable(output, settings) as work:
        assert work == tmp_path / "deep" / "out.partial"
        assert read_record(work / "settings.json", dict[str, Any]) == {"model": "m", "top_k": None, "shard": [1, 1]}
        assert (work / "part").exists()
    with pytest.raises(ArgumentError, match=r"out\.partial .*\(role, top_k\)"):
        enter(output, settings | {"top_k": 3, "role": "query"})
    assert sorted(path.name for path in work.iterdir()) == ["part", "settings.json"]


@pytest.mark.parametrize("result", ["part", "folder", "all"])
def test_a_result_takes_its_place_and_repeating_the_call_says_so(tmp_path: Path, result: str) -> None:
    output, settings = tmp_path / "out", {"model": "m"}
    assert not finished(output, settings)
    output.mkdir()  # an empty folder is free
    assert not finished(output, settings)
    with resumable(output, settings) as work:
        (work / "part").write_text("x")
        (work / "folder").mkdir()
        finish(work, output, work if result == "all" else work / result)
    beside = [".out.settings.json"] if result == "part" else []
    assert sorted(path.name for path in tmp_path.iterdir()) == [*beside, "out"]
    if result == "part":
        assert output.read_text() == "x"
    else:
        expected = ["folder", "part", "settings.json"] if result == "all" else ["settings.json"]
        assert sorted(path.name for path in output.iterdir()) == expected
    assert finished(output, settings)
    with pytest.raises(ArgumentError, match=r"out .*\(model\)"):
        finished(output, {"model": "n"})
    with pytest.raises(ArgumentError):
        enter(output, settings)


def test_settings_and_results_are_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    with resumable(tmp_path / "out", {}) as work:
        (work / "whole").mkdir()
        (work / "whole" / "a").touch()
        monkeypatch.setattr("os.fsync", lambda file: forced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name))
        finish(work, tmp_path / "out", work / "whole")
    assert sorted(forced) == sorted(["a", "settings.json", "whole", tmp_path.name])
    assert forced[-1] == tmp_path.name


def test_work_killed_after_its_last_step_is_cleared_up(tmp_path: Path) -> None:
    settings = {"model": "m"}
    enter(tmp_path / "out", settings)
    with resumable(tmp_path / "other", settings) as work:
        finish(work, tmp_path / "other", work)
    (tmp_path / "other").rename(tmp_path / "out")
    assert finished(tmp_path / "out", settings)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_before_anything_is_done_leaves_nothing(tmp_path: Path) -> None:
    def fail(write: bool) -> None:
        with resumable(tmp_path / "out", {"model": "m"}) as work:
            if write:
                (work / "part").touch()
            raise ModelError("no model")

    with pytest.raises(ModelError):
        fail(write=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ModelError):
        fail(write=True)
    assert sorted(path.name for path in (tmp_path / "out.partial").iterdir()) == ["part", "settings.json"]


def test_a_mistake_removes_what_cannot_be_gone_on_with(tmp_path: Path) -> None:
    def fail(kept: str, error: Exception) -> None:
        with resumable(tmp_path / "out", {"model": "m"}) as work:
            (work / "examples").mkdir(exist_ok=True)
            (work / "examples" / "cache").touch()
            if kept:
                (work / "train" / kept).mkdir(parents=True)
            raise error

    with pytest.raises(ModelError):
        fail("", ModelError("no model"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="unplugged"):
        fail("", OSError("unplugged"))
    with pytest.raises(ModelError):
        fail("checkpoint-2", ModelError("no model"))
    names = sorted(path.name for path in (tmp_path / "out.partial").iterdir())
    assert names == ["examples", "settings.json", "train"]


def test_a_file_that_is_another_one_is_known(tmp_path: Path) -> None:
    output, settings = tmp_path / "out", {"model": "m"}
    with resumable(output, settings) as work:
        (work / "part").write_text("x")
        finish(work, output, work / "part")
    output.write_text("y")
    with pytest.raises(ArgumentError):
        finished(output, settings)
    output.unlink()
    assert not finished(output, settings)


def test_two_processes_do_not_meet_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    output = tmp_path / "out"
    process, child = start(output)
    try:
        pattern = rf"out\.partial is in use by process {process.pid} since \d\d:\d\d:\d\d: wait for it, or name another"
        with pytest.raises(ArgumentError, match=pattern):
            enter(output, {"model": "m"})
        with pytest.raises(ArgumentError):
            enter(output, {"model": "n"})
        process.kill()
        process.wait()
        with resumable(output, {"model": "m"}) as work:
            assert (work / "part").read_text() == "half"
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        process.communicate()
    assert sorted(path.name for path in work.iterdir()) == ["part", "settings.json"]


def test_two_threads_of_one_process_do_not_meet(tmp_path: Path) -> None:
    with resumable(tmp_path / "out", {}), pytest.raises(ArgumentError, match=f" {os.getpid()} "):
        enter(tmp_path / "out", {})


def test_other_processes_of_a_group_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with resumable(tmp_path / "out", {}) as work:
        monkeypatch.setenv("RANK", "1")
        with resumable(tmp_path / "out", {}) as joined:
            assert joined == work
        monkeypatch.setenv("RANK", "0")


def test_work_killed_at_its_beginning_is_repeated(tmp_path: Path) -> None:
    work = tmp_path / "out.partial"
    work.mkdir()
    (work / ".settings.json.part").write_text("{", encoding="utf-8")
    (work / ".lock").touch()
    enter(tmp_path / "out", {"model": "m"})


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    work = tmp_path / "out.partial"
    work.mkdir()
    (work / "thesis.tex").touch()
    for name in ("settings.json", "recipe.json"):
        with pytest.raises(ArgumentError):
            enter(tmp_path / "out", {"model": "m"}, name=name, anew=True)
    assert [path.name for path in work.iterdir()] == ["thesis.tex"]


def test_starting_anew_throws_away_what_was_done(tmp_path: Path) -> None:
    enter(tmp_path / "out", {"model": "m"})
    with resumable(tmp_path / "out", {"model": "n"}, anew=True) as work:
        assert [path.name for path in work.iterdir() if path.name != ".lock"] == ["settings.json"]


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_damaged_settings_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "settings.json").write_text(content, encoding="utf-8")
    with pytest.raises(VectorsError, match=r"settings\.json"):
        enter(tmp_path / "out", {})


def test_inputs_that_have_changed_are_known(tmp_path: Path) -> None:
    corpus, output = tmp_path / "corpus.tsv", tmp_path / "out"
    corpus.write_text("d1\tone")
    first = {"corpus": str(corpus), "inputs": fingerprint(corpus)}
    enter(output, first)
    enter(tmp_path / "other", first)
    corpus.write_text("d1\tone two")
    with pytest.raises(ArgumentError, match=r"other\.partial"):
        enter(tmp_path / "other", {"corpus": str(corpus), "inputs": fingerprint(corpus)})


def test_fingerprints_of_local_files_alone(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    file = tmp_path / "qrels" / "test.tsv"
    file.write_text("x")
    first = fingerprint(f"beir:{tmp_path}")
    assert first == fingerprint(tmp_path) == fingerprint(f"beir:{tmp_path}#test")
    assert len(first) == 16
    os.utime(file, (1, 1))
    assert fingerprint(tmp_path) == first
    file.write_text("y")
    assert fingerprint(tmp_path) != first
    assert [fingerprint(name) for name in ("hf:org/name", "-", "pydocs:", "", tmp_path / "nowhere")] == [""] * 5
    assert fingerprint(file, "-") == fingerprint(file) != ""


def test_standard_input_is_known_by_its_content_and_can_still_be_read() -> None:
    program = "import sys; from vocable.core.storage import fingerprint as f; print(f('-') == f('-') != '', f('-'))"
    program += "; print(sys.stdin.buffer.read())"
    outputs = [
        subprocess.run([sys.executable, "-c", program], input=text, capture_output=True, check=True).stdout.splitlines()
        for text in (b"one", b"two", b"one")
    ]
    assert [lines[1] for lines in outputs] == [b"b'one'", b"b'two'", b"b'one'"]
    assert [line.split()[0] for line, _ in outputs] == [b"True"] * 3
    assert outputs[0] == outputs[2]
    assert outputs[0][0] != outputs[1][0]


def test_an_existing_output_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "file"
    refuse_taken(file)
    file.touch()
    with pytest.raises(ArgumentError):
        refuse_taken(file)


@pytest.mark.parametrize("output", [".", "/", ".."])
def test_an_output_without_a_name_is_refused(output: str) -> None:
    with pytest.raises(ArgumentError):
        partial_of(Path(output))


@pytest.mark.parametrize(
    "record", [{"title": "Ålesund"}, Counts(3, "d3"), Pair(0.5, 1), Model(counts=Counts(1), names=["a"])]
)
def test_records_come_back_as_they_were_written(tmp_path: Path, record: Any) -> None:
    write_record(tmp_path / "a.json", record)
    kind = dict[str, Any] if isinstance(record, dict) else type(record)
    assert read_record(tmp_path / "a.json", kind) == record
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_record_is_plain_json(tmp_path: Path) -> None:
    write_record(tmp_path / "a.json", {"title": "Ålesund"})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "title": "Ålesund"\n}'
    write_record(tmp_path / "a.json", Pair(0.5, 1))
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"low": 0.5, "high": 1}


def test_a_damaged_record_is_named_with_its_first_wrong_field(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"counts": {"parts": "many"}, "names": []}')
    with pytest.raises(ModelError, match=r"a\.json: .*counts: parts must"):
        read_record(path, Model, error=ModelError)
    path.write_text("{")
    with pytest.raises(VectorsError, match=r"a\.json"):
        read_record(path, Model)


def test_settings_inside_others_are_named(tmp_path: Path) -> None:
    enter(tmp_path / "out", {"training": {"steps": 1, "seed": 2}, "model": "m"})
    with pytest.raises(ArgumentError, match=r"\(training\.steps\)"):
        enter(tmp_path / "out", {"training": {"steps": 3, "seed": 2}, "model": "m"})


def test_a_read_only_folder_is_known_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    for check, output in ((refuse_taken, tmp_path / "a" / "b"), (check_file, tmp_path / "c")):
        with pytest.raises(ArgumentError, match=f"{output} .*{tmp_path}"):
            check(output)
