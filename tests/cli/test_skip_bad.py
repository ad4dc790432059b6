"""The option --skip-bad: one meaning in every command that reads."""

from __future__ import annotations

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import done, refused
from vocable.cli import COMMANDS, main
from vocable.service.schemas import SearchAnswer

READING = {
    *("ablate", "add", "analyze-logits", "calibrate", "encode", "evaluate", "expand-vocabulary"),
    *("export-model", "index", "inspect", "make-inference-free", "make-testset", "measure-wackiness", "mine"),
    *("pretrain", "prune", "rescale", "search", "select", "teacher-scores", "train-vocabulary", "transfer", "tune"),
}


def test_every_command_that_reads_has_it() -> None:
    reading = {name for name in COMMANDS if "skip_bad" in COMMANDS[name].parameters}
    assert reading == READING  # of a recipe it is data.skip_bad


@pytest.fixture(scope="module")
def index(model: str, dataset: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    output = str(tmp_path_factory.mktemp("indexes") / "toy")
    assert main(["index", model, dataset, "-o", output, "--dtype", "float32"]) == 0
    return output


COMMAND: dict[str, list[str]] = {
    "add": ["INDEX", "DOCUMENTS"],
    "search": ["INDEX", "--queries", "QUERIES", "--json"],
    "evaluate": ["RUN", "--judgments", "JUDGMENTS", "-m", "RR"],
    "mine": ["MODEL", "EXAMPLES", "-o", "OUT", "--negatives", "2"],
    "teacher-scores": ["MODEL", "EXAMPLES", "-o", "OUT"],
    "analyze-logits": ["MODEL", "DOCUMENTS"],
    "inspect": ["MODEL", "--texts", "DOCUMENTS"],
    "calibrate": ["MODEL", "DOCUMENTS", "-o", "OUT", "--shift", "1"],
    "train-vocabulary": ["DOCUMENTS", "--size", "84,90"],
    "make-inference-free": ["MODEL", "--texts", "DOCUMENTS", "-o", "OUT"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMAND)
def test_bad_lines_are_tolerated_and_said(
    capsys: pytest.CaptureFixture[str], model: str, index: str, toy_texts: list[str], tmp_path: Path, name: str
) -> None:
    texts = sorted(set(toy_texts))[:20]
    rows: dict[str, list[dict[str, Any]]] = {
        "DOCUMENTS": [{"_id": f"x{i}", "text": f"{text} {i}"} for i, text in enumerate(texts)],
        "QUERIES": [{"_id": f"q{i}", "text": text} for i, text in enumerate(texts[:3])],
        "EXAMPLES": [{"query": text[:15], "positive": text} for text in texts],
        "JUDGMENTS": [{"query-id": "q1", "corpus-id": f"d{i}", "score": 1} for i in range(3)],
    }
    files = {"MODEL": model, "INDEX": index, "OUT": str(tmp_path / "out"), "RUN": str(tmp_path / "run")}
    (tmp_path / "run").write_text("q1 Q0 d0 1 2.5 tag\n", encoding="utf-8")
    for kind, some in rows.items():
        files[kind] = str(tmp_path / f"{kind.lower()}.jsonl")
        lines = [json.dumps(row) for row in some]
        Path(files[kind]).write_text("\n".join([lines[0], "{oops", *lines[1:]]), encoding="utf-8")
    command = [name, *(files.get(word, word) for word in COMMAND[name])]
    [source] = [files[word] for word in COMMAND[name] if word in rows]
    assert refused(capsys, *command).startswith(f"vocable: {source}:2: not JSON")
    capsys.readouterr()
    assert main([*command, "--skip-bad", "1"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "\r" not in line]
    assert [line for line in said if "bad line" in line] == [
        line for line in said if line.startswith(f"vocable: 1 bad line skipped, the first: {source}:2: not JSON")
    ]
    assert sum("bad line" in line for line in said) == 1


def test_a_recipe_says_how_many(
    capsys: pytest.CaptureFixture[str], model: str, toy_texts: list[str], tmp_path: Path
) -> None:
    pairs = [json.dumps({"query": f"{i}", "positive": f"{i} {text}"}) for i, text in enumerate(toy_texts[:8])]
    (tmp_path / "pairs.jsonl").write_text("\n".join([*pairs, "{oops"]), encoding="utf-8")
    recipe = {"model": model, "data": {"examples": ["pairs.jsonl"]}, "training": {"steps": 1, "batch_size": 4}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    command = ["train", tmp_path / "recipe.yaml", "-o", tmp_path / "out", "--override", f"data_folder={tmp_path}"]
    assert refused(capsys, *command).startswith(f"vocable: {tmp_path}/pairs.jsonl:9: not JSON")
    capsys.readouterr()
    assert main([*map(str, command), "--override", "data.skip_bad=1", "--no-resume"]) == 0
    assert f"1 bad line skipped, the first: {tmp_path}/pairs.jsonl:9: not JSON" in capsys.readouterr().err


def test_ids_are_deleted_as_they_were_added(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [" a", "a", "a b ", "\u2003", "é", "x"]
    corpus = [json.dumps({"_id": name, "text": "the old fox"}) for name in ids if name.strip()]
    (tmp_path / "c.jsonl").write_text("\n".join(corpus), encoding="utf-8")
    done(capsys, "index", model, tmp_path / "c.jsonl", "-o", tmp_path / "ix", "--dtype", "float32")

    def delete(content: str) -> dict[str, int]:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(content.encode())))
        found: dict[str, int] = json.loads(done(capsys, "delete", tmp_path / "ix", "-", "--json"))
        return found

    assert delete("b\n\na b\n") == {"added": 0, "replaced": 0, "unchanged": 0, "deleted": 0, "documents": 5}
    assert delete(" a\r\na b \n")["deleted"] == 2
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"x\na\tb\n")))
    assert refused(capsys, "delete", tmp_path / "ix", "-").startswith("vocable: -:2: the id 'a\\tb' has a tab")
    assert delete("a\né\nx")["documents"] == 0


def test_a_blank_line_of_stdin_has_an_empty_answer(
    capsys: pytest.CaptureFixture[str], index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(content: bytes) -> list[dict[str, Any]]:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(content)))
        return [json.loads(line) for line in done(capsys, "search", index, "-", "--json").splitlines()]

    found = answers(b"old fox\n\n \t\n  posting lists \n")
    assert [(one["id"], one["query"], bool(one["hits"])) for one in found] == [
        ("1", "old fox", True),
        ("2", "", False),
        ("3", "", False),
        ("4", "posting lists", True),
    ]
    assert found[1] == {"id": "2", "query": "", "hits": []}


def test_a_service_is_not_asked_a_blank_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Service:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Service:
            return self

        def __exit__(self, *_: object) -> None: ...

        def answer(self, body: dict[str, Any]) -> SearchAnswer:
            asked.append(body["query"])
            return SearchAnswer(hits=[])

    monkeypatch.setattr("vocable.service.client.Client", Service)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"old fox\n\nnew fox\n")))
    lines = done(capsys, "search", "http://localhost:1", "-", "--json").splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["old fox", "", "new fox"]
    assert asked == ["old fox", "new fox"]
