"""The command line: exit statuses, the one line of an error, silence, and help."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vocable
from tests.cli.command_line import done
from vocable.cli import COMMANDS, QUIET, main
from vocable.cli.inputs import read_text
from vocable.cli.words import arguments_of
from vocable.errors import ArgumentError

RESCALING = str(Path(__file__).parents[2] / "studies/small/rescaling.yaml")
VERBS = sorted(COMMANDS)


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr, with nothing on stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    line, rest = [line for line in captured.err.split("\n") if "\r" not in line]  # bars of libraries imported before
    assert rest == ""
    return line


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_verb_in_a_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    listed = captured.out.partition("Search:")[2]
    assert [heading in captured.out for heading in ("Search:", "Train:", "Adapt:", "Analyze:")] == [True] * 4
    assert sorted(line.split()[0] for line in listed.splitlines() if line.startswith("  ")) == VERBS
    assert "..." not in listed  # nothing is cut
    assert max(map(len, captured.out.splitlines())) <= 80


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_that_parses(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    [example] = [line.partition("Example: ")[2] for line in text.splitlines() if "Example: " in line]
    assert f"{example}\n\n" in text  # on one line, to be copied
    words = shlex.split(example)
    assert words[:2] == ["vocable", verb]
    arguments_of(COMMANDS[verb], words[2:])
    assert all(parameter.help for parameter in COMMANDS[verb].parameters.values())


def test_every_verb_that_loads_a_model_is_told_in_the_same_words_where() -> None:
    takes = {verb: COMMANDS[verb].parameters for verb in VERBS}
    found = {verb: parameters["device"].help for verb, parameters in takes.items() if "device" in parameters}
    stored = {"analyze-postings", "analyze-weights", "check", "compare", "delete", "export", "prune", "recipes"}
    stored |= {"alias", "convert", "drop", "merge", "train-vocabulary", "publish"}  # no model encodes
    trainer = {"demo", "train"}  # which choose the device themselves
    graphs = {"export-model"}  # which run on the processor
    assert set(VERBS) - set(found) == stored | trainer | graphs
    assert len(set(found.values())) == 1


def test_a_device_that_is_not_here_ends_every_verb_before_its_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str, corpus: Path, dataset: str, vectors: Path
) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"query": "fox", "positive": "the old fox"}\n', encoding="utf-8")
    pairs, output = str(tmp_path / "pairs.jsonl"), ["-o", str(tmp_path / "out")]
    commands = (
        ["encode", model, dataset, *output],
        ["index", model, dataset, *output],
        ["explain", model, "a fox"],
        ["evaluate", model, "--dataset", dataset],
        ["evaluate", str(vectors), "--dataset", dataset],
        ["mine", model, pairs, *output],
        ["teacher-scores", model, pairs, *output],
        ["inspect", model, "--texts", str(corpus)],
        ["rescale", model, "--factor", "2", *output],
        ["measure-wackiness", model, "--queries", dataset, "--corpus", dataset, *output],
        ["ablate", model, dataset, *output],
        ["analyze-logits", model, str(corpus)],
    )
    for command in commands:
        for device in ("meta", "cuda:99"):
            assert main([*command, "--device", device]) == 2
            assert error_line(capsys).startswith("vocable: --device must be one that PyTorch has here (cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]
    assert main(["explain", model, "a fox", "--device", "cpu"]) == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cook"], "vocable: no command 'cook' (see vocable --help)"),
        (["serach", "i", "q"], "vocable: no command 'serach' (did you mean search?)"),
        (["--fast", "encode"], "vocable: --fast is no option before a command (see vocable --help)"),
        (["encode", "--fast"], "vocable: encode has no option --fast (see vocable encode --help)"),
        (
            ["encode", "m", "c", "--max-term", "3"],
            "vocable: encode has no option --max-term (did you mean --max-terms?)",
        ),
        (["encode"], "vocable: encode needs MODEL, TEXTS, -o (see vocable encode --help)"),
        (["encode", "m", "c"], "vocable: encode needs -o (see vocable encode --help)"),
        (["encode", "m", "c", "more", "-o", "o"], "vocable: 'more' is one word too many (see vocable encode --help)"),
        (["encode", "m", "c", "-o", "o", "--role", "author"], "--role must be query or document, not 'author'"),
        (["encode", "m", "c", "-o", "o", "--max-terms", "many"], "--max-terms must be a whole number, not 'many'"),
        (["search", "i", "q", "-k", "abc"], "vocable: --k must be a whole number, not 'abc'"),
        (["search", "i", "q", "-k"], "vocable: -k needs a value (see vocable search --help)"),
        (["search", "i", "q", "--explain=yes"], "vocable: --explain takes no value"),
        (["search", "i", "q", "--min-score", "x"], "vocable: --min-score must be a number, not 'x'"),
        (["train-vocabulary", "t", "--size", "100,x"], "vocable: --size must be a whole number, not 'x'"),
        (
            ["encode", "vocable-mini", "pydocs:", "-o", "o", "--shard", "3"],
            "--shards",
        ),
        (["encode", "m", "c", "-o", "o", "--max-length", "0"], "vocable: --max-length must be at least 1, not 0"),
        (["encode", "m", "none.jsonl", "-o", "o"], "vocable: none.jsonl: no such file (a source is a path or one of"),
        (["search", "i"], "vocable: give queries, - for stdin, or --queries SOURCE: one of the three"),
        (["search", "i", "q", "--like", "d"], "vocable: --like takes the place of a query: give one of them"),
        (["evaluate", "bm25", "--dataset", "d", "--rerank-ms", "9"], "vocable: --rerank-ms needs --rerank"),
        (["search", "i", "q", "--queries", "p"], "vocable: give queries, - for stdin, or --queries SOURCE"),
        (["search", "i", "q", "--run", "r"], "vocable: --run goes with --queries and without --explain"),
        (["search", "i", "q"], "vocable: i: there is no index here (make one with vocable index)"),
        (["explain", "m", "@none.txt"], "vocable: none.txt: no such file (a text that begins with @ names one)"),
        (
            ["evaluate", "m", "--dataset", "d", "-m", "nDGC@10"],
            "vocable: unknown measure 'nDGC@10': did you mean",
        ),
        (["evaluate", "m", "--dataset", "beir:none"], "vocable: beir:none: no such folder"),
        (["compare", "none.json"], "vocable: none.json: No such file or directory"),
        (["compare", "m"], "vocable: m: not a file of evaluations"),
        (["select", "m", "--dataset", "d", "--max-p95", "20ms"], "vocable: --max-p95 must be a number, not '20ms'"),
        (["select", "m", "--dataset", "d", "--max-p95", "0"], "vocable: --max-p95 must be above 0, not 0"),
        (["select", "m", "--dataset", "d", "--grid", "rescore=9"], "--grid: no index rescores by itself"),
        (["train", "none.yaml", "-o", "o"], "vocable: none.yaml: No such file or directory"),
        (["train", "none", "-o", "o"], "no recipe 'none': name a YAML file, or one of backbone-to-retriever, my-pairs"),
        (["recipes", "none"], "no recipe 'none': name a YAML file, or one of backbone-to-retriever, my-pairs"),
        (
            ["train", "my-pairs", "-o", "o", "--variant", "a", "--variants", "all"],
            "vocable: give --variant for one, or --variants for several, not both",
        ),
        (["train", RESCALING, "-o", "o", "--variant", "k1"], "vocable: this recipe needs a backbone"),
        (["pretrain", "m", "t", "-o", "o", "--steps", "few"], "vocable: --steps must be a whole number, not 'few'"),
        (["pretrain", "vocable-mini", "file", "-o", ".", "--steps", "1"], "vocable: . "),
        (["pretrain", "m", "t", "-o", "o", "--steps", "0"], "vocable: --steps must be at least 1, not 0"),
        (
            ["pretrain", "m", "t", "-o", "o", "--steps", "1", "--dropout", "1"],
            "vocable: --dropout must be at least 0 and below 1",
        ),
        (["expand-vocabulary", "m", "-o", "o", "--seed", "-1"], "vocable: --seed must be at least 0, not -1"),
        (["mine", "m", "e", "-o", "o", "--negatives", "0"], "vocable: --negatives must be at least 1, not 0"),
        (["search", "i", "q", "-k", "9" * 30], "vocable: --k must be below 2147483648"),
        (["search", "i", "q", "--minimum-match", "nan"], "vocable: --minimum-match must be a finite number, not nan"),
        (["encode", "m", "file", "-o", "o", "--mass", "2"], "vocable: --mass must be above 0 and at most 1, not 2"),
        (["rescale", "m", "-o", "o", "--factor", "-1"], "vocable: --factor must be above 0, not -1"),
        (["rescale", "m", "-o", "o", "--factor", "x"], "vocable: --factor must be auto or a number, not 'x'"),
        (["calibrate", "m", "t", "-o", "o", "--device", ""], "vocable: --device must not be empty"),
        (["compare", "\udcff"], "'\\udcff': an argument is text in UTF-8"),
        (["calibrate", "vocable-mini", "file", "-o", "o"], "vocable: give either --activation-rate or --shift"),
        (["explain", "vocable-mini", "q", "--device", "cpuu"], "--device must be one that PyTorch has here (cpu"),
        (["inspect", "vocable-mini", "--device", "meta"], "--device must be one that PyTorch has here (cpu"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(arguments) == 2
    found = error_line(capsys)
    assert found.startswith("vocable: ")
    assert line in found
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # nothing half-made is left


def test_arguments_in_the_wrong_order_are_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    texts, index = tmp_path / "texts.jsonl", tmp_path / "my-index"
    texts.touch()
    assert main(["index", str(texts), "vocable-mini", "-o", f"{tmp_path}/x"]) == 2
    assert error_line(capsys).startswith("vocable: MODEL must be a folder, a Hub id or vocable-mini, not the file ")
    index.mkdir()
    (index / "commit.json").touch()
    assert main(["search", "copy a file", str(index)]) == 2
    assert error_line(capsys) == f"vocable: the index {index} comes first, then the queries"


def test_a_missing_model_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["explain", f"{tmp_path}/none", "a query"]) == 2
    assert error_line(capsys) == f"vocable: {tmp_path}/none: no such model folder; there is no index either"
    assert main(["explain", "no-such-model", "a query"]) == 2
    line = error_line(capsys)
    assert line.startswith("vocable: no-such-model: no such model folder, and ")
    assert line.endswith("; there is no index either")


def test_a_folder_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "corpus.txt").write_text("the old fox\n", encoding="utf-8")
    output = tmp_path / "file" / "vectors"
    capsys.readouterr()
    assert main(["encode", str(backbones["bert"]), str(tmp_path / "corpus.txt"), "-o", str(output)]) == 2
    assert error_line(capsys) == f"vocable: {output} cannot be written: {tmp_path / 'file'} is not a folder"


def test_a_fault_of_ours_is_one_line_and_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VOCABLE_DEBUG", raising=False)
    monkeypatch.setattr("vocable.encoding.load.load_encoder", raising(RuntimeError("a tensor\nof another shape")))
    assert main(["explain", "m", "q"]) == 1
    expected = "vocable: internal error: RuntimeError: a tensor; set VOCABLE_DEBUG=1 for the traceback"
    assert error_line(capsys) == expected


def test_the_traceback_is_there_for_those_who_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOCABLE_DEBUG", "1")
    monkeypatch.setattr("vocable.encoding.load.load_encoder", raising(RuntimeError("boom")))
    assert main(["explain", "m", "q"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("vocable: internal error: RuntimeError: boom")


def test_what_vocable_logs_is_a_line_of_the_same_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["recipes"]) == 0
    assert main(["recipes"]) == 0  # twice: still one line
    capsys.readouterr()
    logging.getLogger("vocable.encoding.stream").warning("%d texts were cut", 3)
    logging.getLogger("transformers.of.others").warning("missing keys")
    assert "vocable: 3 texts were cut" in capsys.readouterr().err.splitlines()


def test_an_argument_after_an_at_sign_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("\ufeffÅlesund\n".encode())
    assert read_text(f"@{tmp_path}/text") == "Ålesund\n"
    assert read_text("me@home") == "me@home"
    (tmp_path / "text").write_bytes(b"\xff")
    with pytest.raises(ArgumentError, match="text: not UTF-8"):
        read_text(f"@{tmp_path}/text")


def test_the_option_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vocable {vocable.__version__}\n"


def test_recipes_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    headings = {line.split(":")[0]: line for line in lines if not line.startswith(" ")}
    assert {"my-pairs", "backbone-to-retriever"} == headings.keys()
    assert main(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert all(listed[name]["about"] for name in headings)
    assert main(["recipes", "my-pairs"]) == 0
    assert "pydocs:#train" in capsys.readouterr().out


def test_a_reader_that_stops_reading_ends_quietly() -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "vocable", "recipes", "my-pairs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout is not None
    program.stdout.close()
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, b"")


@pytest.mark.parametrize(
    ("closed", "arguments", "status", "said"),
    [
        (">&-", "recipes", 0, ""),
        ("2>&-", "recipes my-pairs", 0, ""),
        ("<&-", "index vocable-mini - -o out", 2, "vocable: - has no documents\n"),
        ("<&- >&- 2>&-", "search nowhere x", 2, ""),
    ],
)
def test_a_closed_stream_is_the_null_device(
    tmp_path: Path, closed: str, arguments: str, status: int, said: str
) -> None:
    command = f'exec "{sys.executable}" -m vocable {arguments} {closed}'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, said)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_program_says_nothing_of_its_own_accord(backbones: dict[str, Path], tmp_path: Path) -> None:
    """A real process, with all that the libraries print when they load a model."""
    environment = {name: value for name, value in os.environ.items() if name not in {*QUIET, "VOCABLE_DEBUG"}}
    (tmp_path / "corpus.txt").write_text("the old fox reads books\nposting lists\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "vocable", "index", str(backbones["bert"]), "corpus.txt", "-o", "out", "--json"],
        cwd=tmp_path,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('{\n  "output": "out",\n  "texts": 2,')


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_no_python_type(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert not re.findall(r"<(?:str|int|float|list|Path|None)\b[^>]*>", done(capsys, verb, "--help"))


@pytest.mark.parametrize(
    "command",
    [
        ["train", "x.yaml", "-o", "out"],
        ["compare", "x.json"],
        ["expand-vocabulary", "MODEL", "--words", "x.txt", "-o", "out"],
        ["explain", "MODEL", "@x.txt"],
    ],
    ids=lambda command: command[0],
)
def test_a_device_is_refused_as_an_input_file(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: str,
    command: list[str],
) -> None:
    """Of one, such as /dev/zero, there is no end."""
    monkeypatch.chdir(tmp_path)
    name = next(word.lstrip("@") for word in command if "x." in word)
    (tmp_path / name).symlink_to("/dev/null")
    assert main([model if word == "MODEL" else word for word in command]) == 2
    assert error_line(capsys) == f"vocable: {name}: not a regular file"
