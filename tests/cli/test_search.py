"""The commands that search: what encode, index, search, explain, evaluate, compare and prune print and leave behind."""

from __future__ import annotations

import json
import re
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import vocable
from tests.cli.command_line import done, refused
from vocable.cli import main
from vocable.collection.collection import open_index
from vocable.core.open_folder import OpenFolder
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.pruning import prune
from vocable.encoding.vectors import read_vectors
from vocable.engines.folder import _write_commit, read_commit
from vocable.explanation.explain import Explanation, explain_texts

NARROW = 80  # columns
RANKED_BY = "ranked by the model's terms and words (BM25)"


def test_a_loop_of_links_and_long_arguments_are_one_short_line(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert f"{tmp_path / 'loop'}: there is no index here" in refused(capsys, "search", tmp_path / "loop", "fox")
    assert len(refused(capsys, "search", f"{tmp_path}/{'x' * 100_000}", "fox")) < 4100


def change_settings(index: Path, **changes: object) -> None:
    """Write a commit with other settings; None removes a setting."""
    directory = OpenFolder(index)
    commit = read_commit(directory)
    settings = {name: value for name, value in (commit.settings | changes).items() if changes.get(name, 0) is not None}
    _write_commit(directory, commit._replace(settings=settings))


def test_settings_of_an_index_that_are_a_list_are_damage(
    capsys: pytest.CaptureFixture[str], model: str, corpus: Path, tmp_path: Path
) -> None:
    done(capsys, "index", model, corpus, "-o", tmp_path / "index")
    change_settings(tmp_path / "index", limits=["passages"])
    assert "the index is damaged: its settings: limits" in refused(capsys, "search", tmp_path / "index", "fox")


@pytest.mark.parametrize("damage", ["no setting", "new setting", "format", "no record"])
def test_an_index_of_another_version_is_to_be_made_again(
    capsys: pytest.CaptureFixture[str], model: str, corpus: Path, tmp_path: Path, damage: str
) -> None:
    done(capsys, "index", model, corpus, "-o", tmp_path / "index")
    file = tmp_path / "index" / "commit.json"
    if damage == "no setting":
        change_settings(tmp_path / "index", inputs=None)
    elif damage == "new setting":
        change_settings(tmp_path / "index", old=True)
    elif damage == "format":
        file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2}))
    else:
        file.rename(tmp_path / "index" / "store.json")  # the record of earlier versions
    assert "another version of vocable: index again" in refused(capsys, "search", tmp_path / "index", "fox")


def test_encode_writes_vectors_and_prints_their_figures(
    capsys: pytest.CaptureFixture[str], model: str, beir: Path, tmp_path: Path
) -> None:
    place, output = beir / "corpus.jsonl", tmp_path / "vectors"
    options = ["--dtype", "float32", "--max-terms", 7, "--max-length", 6]
    text = done(capsys, "encode", model, place, "-o", output, *options)
    assert text.startswith("30 texts, ")
    assert "\n30 texts cut at 6 tokens\n" in text
    rows = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
    texts = [f"{row['title']} {row['text']}" for row in rows]
    found = read_vectors(output)
    expected = encode(load(model), texts, max_terms=7, max_length=6, dtype="float32")
    np.testing.assert_allclose(found.matrix.toarray(), expected.toarray(), atol=1e-5)
    assert list(found.ids) == [row["_id"] for row in rows]
    assert (found.meta.model, found.meta.role) == (model, "document")


@pytest.mark.slow
def test_values_that_cannot_be_written_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, dataset: str, tmp_path: Path
) -> None:
    command = ["evaluate", model, "--dataset", dataset, "-m", "RR@10", "-o"]
    for output in (".", tmp_path, tmp_path / "no" / "values.json"):
        refused(capsys, *command, output)  # before the work: nothing is shown
    capsys.readouterr()
    monkeypatch.setattr(
        "vocable.evaluation.evaluate.replacing", Mock(side_effect=OSError(28, "No space left", "values"))
    )
    assert main([*command, str(tmp_path / "values.json")]) == 2
    shown, said = capsys.readouterr()
    assert "RR@10" in shown
    assert "written" not in shown
    assert said == "vocable: values: No space left\n"
    assert list(tmp_path.iterdir()) == []


def test_encode_queries_with_bad_lines(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    place, output = tmp_path / "queries.tsv", tmp_path / "vectors"
    place.write_text("q1\tthe old fox\nq2\nq3\tposting lists\nq4\tbooks\n", encoding="utf-8")
    arguments = ["encode", model, place, "-o", output, "--role", "query"]
    assert refused(capsys, *arguments).startswith(f"vocable: {place}:2: ")
    values = json.loads(done(capsys, *arguments, "--skip-bad", 1, "--json"))
    del values["seconds"], values["texts_per_second"]
    assert values == {"output": str(output), "texts": 3, "truncated": 0, "empty": 0, "bad_lines": 1}
    found = read_vectors(output)
    assert (list(found.ids), found.meta.role) == (["q1", "q3", "q4"], "query")


def test_bad_lines_are_reported(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    place = tmp_path / "corpus.jsonl"
    place.write_text('{"_id": "a", "text": "books"}\n{\n', encoding="utf-8")
    text = done(capsys, "encode", model, place, "-o", tmp_path / "out", "--skip-bad", 2)
    assert f"1 bad line skipped, the first: {place}:2: " in text


@pytest.mark.slow
@pytest.mark.parametrize("bits", [16, 8])
def test_an_index_of_rounded_weights(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, vectors: Path, tmp_path: Path, bits: int
) -> None:
    found = {}
    for name, source in (("encoded", model), ("stored", vectors)):
        place = tmp_path / name
        done(capsys, "index", source, dataset, "-o", place, "--engine-options", f"weight_bits={bits}")
        assert open_index(place).store.settings["engine_options"] == {"weight_bits": bits}
        assert "already there" in done(
            capsys, "index", source, dataset, "-o", place, "--engine-options", f"weight_bits={bits}"
        )
        assert "weight_bits" in refused(capsys, "index", source, dataset, "-o", place)
        found[name] = json.loads(done(capsys, "search", place, "posting lists", "--weights", "sparse", "--json"))[
            "hits"
        ]
    done(capsys, "index", vectors, dataset, "-o", tmp_path / "whole")
    whole = json.loads(done(capsys, "search", tmp_path / "whole", "posting lists", "--weights", "sparse", "--json"))[
        "hits"
    ]
    for hits in found.values():
        scores = {hit["id"]: hit["score"] for hit in whole}
        assert all(hit["score"] == pytest.approx(scores[hit["id"]], rel=0.05) for hit in hits if hit["id"] in scores)
    made = ["index", vectors, dataset, "-o"]
    for wrong, message in (("weight_bits=4", "must be 8 or 16, not 4"), ("bits=8", "folder engine has weight_bits")):
        line = refused(capsys, *made, tmp_path / "no", "--engine-options", wrong)
        assert message in line


def test_the_same_command_again_changes_nothing(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, index: str
) -> None:
    again = ["index", model, dataset, "-o", index, "--dtype", "float32"]
    assert done(capsys, *again).startswith(f"{index}: 30 texts\nalready there")
    line = f"vocable: {index} was made with other settings (bm25): name another output, or remove it"
    assert refused(capsys, *again, "--no-bm25") == line


def test_search_prints_hits_with_scores(capsys: pytest.CaptureFixture[str], index: str, model: str, beir: Path) -> None:
    rows = [json.loads(line) for line in (beir / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    query = "the old fox reads"
    encoder = load(model)
    documents = encode(encoder, [f"{row['title']} {row['text']}" for row in rows], dtype="float32")
    scores = (encode(encoder, [query], "query", dtype="float32") @ documents.T).toarray()[0]
    best = rows[int(scores.argmax())]
    text = done(capsys, "search", index, query, "-k", 3, "--weights", "sparse")
    note, *lines, blank, ranked_by = text.splitlines()
    assert note == "no document has the words old, fox"
    assert (blank, ranked_by) == ("", "ranked by the model's terms")
    assert len(lines) == 6  # two a hit, and the only query is not repeated
    assert lines[0].split()[0] == "1"
    assert float(lines[0].split()[1]) == pytest.approx(scores.max(), rel=0.02)  # dtype auto may be bfloat16
    assert lines[0].split()[2:] == [best["_id"], *best["title"].split()]
    assert lines[1].strip() == best["text"]


def test_a_hit_shows_the_best_part_of_its_text(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "Nothing is said about it here. " * 40
    text = f"{long}An\x1b[31mOLD fox\n\n reads \x1b[1mbooks. {long}"
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"_id": "long", "title": "The fox", "text": text}) + "\n")
    done(capsys, "index", model, tmp_path / "corpus.jsonl", "-o", tmp_path / "index", warning="does not know the words")
    command = ["search", tmp_path / "index", "the old foxes"]
    [hit] = json.loads(done(capsys, *command, "--json"))["hits"]
    part = hit["snippet"]
    assert hit["text"][part["start"] : part["end"]] == part["text"]
    assert len(part["text"]) <= 300
    assert [part["text"][mark["start"] : mark["end"]] for mark in part["marks"]] == ["fox"]
    assert {mark["term"] for mark in part["marks"]} == {"fox"}
    assert [hit["title"][mark["start"] : mark["end"]] for mark in part["title_marks"]] == ["fox"]
    plain = done(capsys, *command)
    unknown, head, *lines = plain.splitlines()[:-2]
    assert unknown.endswith(" old")  # an escape sequence stands before it
    assert head.split()[0] == "1"
    assert head.endswith("long The fox")
    assert len(lines) == 2
    assert max(map(len, (head, *lines))) <= NARROW
    shown = " ".join(line.strip() for line in lines)
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert "An\\x1b[31mOLD fox reads \\x1b[1mbooks." in shown
    assert "\x1b" not in plain
    monkeypatch.setattr("vocable.core.tables.has_colours", lambda: True)
    bold = done(capsys, *command)
    assert re.findall("\x1b\\[1m(.*?)\x1b\\[0m", bold) == ["fox", "fox"]
    assert re.sub("\x1b\\[[01]m", "", bold) == plain
    monkeypatch.setenv("COLUMNS", "")
    monkeypatch.setattr("vocable.core.tables.has_colours", lambda: False)
    piped = done(capsys, *command).splitlines()[2:-2]  # not a terminal: the same two lines
    assert "An\\x1b[31mOLD fox reads \\x1b[1mbooks." in " ".join(line.strip() for line in piped)
    assert (len(piped), max(map(len, piped)) <= 80) == (2, True)
    assert long in done(capsys, *command, "--full").splitlines()[2]


def test_search_explains(capsys: pytest.CaptureFixture[str], index: str) -> None:
    text = done(capsys, "search", index, "the old fox reads", "-k", 2, "--explain")
    assert max(map(len, text.splitlines())) <= NARROW
    assert text.count("expansion: ") == 2
    found = done(capsys, "search", index, "fox", "--weights", "sparse", "--explain", "--json")
    [answer] = [json.loads(line) for line in found.splitlines()]
    assert answer["weights"] == {"sparse": 1}
    for hit in answer["hits"]:
        matches = hit["explanation"]["matches"]
        assert sum(match["contribution"] for match in matches) == pytest.approx(hit["score"], rel=1e-4)
        assert sum(match["share"] for match in matches) == pytest.approx(1)


def test_search_many_queries(
    capsys: pytest.CaptureFixture[str], index: str, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(*arguments: object) -> list[Any]:
        lines = done(capsys, "search", index, *arguments, "--json", "-k", 2).splitlines()
        return [json.loads(line) for line in lines]

    from_arguments = answers("old fox", "posting lists")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"old fox\n\nposting lists\n")))
    from_stdin = answers("-")
    assert [answer["query"] for answer in from_stdin] == ["old fox", "", "posting lists"]
    for one, other in zip(from_arguments, from_stdin[::2], strict=True):
        assert [hit["id"] for hit in one["hits"]] == [hit["id"] for hit in other["hits"]]
    assert [answer["id"] for answer in answers("--queries", dataset)] == [f"q{i}" for i in range(6)]
    text = done(capsys, "search", index, "old fox", "posting lists", "-k", 1)
    headings = [line for line in text.splitlines() if not line.startswith(" ")]
    assert headings == ["old fox", "no document has the words old, fox", "", "posting lists", "", RANKED_BY]


@pytest.mark.slow
def test_fused_scores_and_no_hits(capsys: pytest.CaptureFixture[str], index: str) -> None:
    values = json.loads(done(capsys, "search", index, "fox", "--json", "-k", 1))
    # The best of two scores from 0 to 1: whatever is first in one of the rankings has 1 from it, and up to 1 more.
    assert 1 <= values["hits"][0]["score"] <= 2
    explained = done(capsys, "search", index, "fox", "--explain", "-k", 1)
    alone = done(capsys, "search", index, "fox", "-k", 30, "--weights", "sparse")
    assert explained.endswith(f"\n\n{RANKED_BY}\n")
    [first] = [line for line in explained.splitlines() if line.startswith("  1 ")]
    found, own = first.split()[2], explained.partition("the model's own score, ")[2].partition(":")[0]
    assert any(line.split()[1:3] == [own, found] for line in alone.splitlines() if line[:3].strip())
    assert " parts: sparse 1 + bm25 0 (words: none)\n" in explained
    found = done(capsys, "search", index, "the librarian", "--explain", "-k", 1)
    assert re.search(r"^ +parts: sparse [\d.]+ \+ bm25 [\d.]+ \(words: librarian\)$", found, re.MULTILINE)
    assert "parts: " not in done(capsys, "search", index, "the librarian", "-k", 1)
    assert "parts: " not in done(capsys, "search", index, "fox", "--weights", "sparse", "--explain")
    lexical = ["search", index, "librarian", "--json", "--weights"]
    assert done(capsys, *lexical, "bm25") == done(capsys, *lexical, "bm25=1,sparse=0")
    weighed = done(capsys, "search", index, "fox", "--weights", "sparse=0.6,bm25=0.4")
    assert weighed.endswith(f"\n{RANKED_BY}, with the weights sparse=0.6,bm25=0.4\n")
    ranks = done(capsys, "search", index, "fox", "--fusion", "reciprocal-rank", "--json", "-k", 1)
    assert 0 < json.loads(ranks)["hits"][0]["score"] <= 2 / 61
    assert refused(capsys, "search", index, "fox", "--weights", "word=1").startswith(
        "vocable: --weights: there is no space 'word': the index has sparse, bm25"
    )
    none = done(capsys, "search", index, "the old fox reads books", "--minimum-match", 1)
    assert none.endswith("\nno hits\n\nranked by the model's terms\n")
    assert refused(capsys, "search", index, "fox", "-k", 0).startswith("vocable: --k must be at least 1, not 0")


def test_explain_prints_the_terms_of_a_score(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "document.txt").write_text("a librarian reads books", encoding="utf-8")
    arguments = ["explain", model, "old books", f"@{tmp_path}/document.txt"]
    expected = explain_texts(load(model), "old books", "a librarian reads books")
    assert json.loads(done(capsys, *arguments, "--json")) == json.loads(json.dumps(expected.to_json()))
    text = done(capsys, *arguments)
    assert expected.matches[0].term in text
    assert max(map(len, text.splitlines())) <= NARROW
    expansion = json.loads(done(capsys, "explain", model, "old books", "--json"))
    vector = encode(load(model), ["old books"], "query").toarray()[0]
    assert expansion["active"] == np.count_nonzero(vector)
    assert expansion["terms"][0]["weight"] == pytest.approx(vector.max())
    missing = refused(capsys, "explain", model, f"@{tmp_path}/none.txt")
    assert missing == f"vocable: {tmp_path}/none.txt: no such file (a text that begins with @ names one)"


def test_explain_says_why_a_document_is_no_hit(capsys: pytest.CaptureFixture[str], index: str) -> None:
    hits = json.loads(done(capsys, "search", index, "the old fox", "-k", 30, "--json"))["hits"]
    found = json.loads(done(capsys, "explain", index, "the old fox", hits[9]["id"], "-k", 3, "--json"))
    assert (found["rank"], found["score"], found["last_score"]) == (10, hits[9]["score"], hits[2]["score"])
    text = done(capsys, "explain", index, "the old fox", hits[9]["id"], "-k", 3)
    assert text.startswith(f"{hits[9]['id']} ")
    assert "hit 10, with the score " in text
    assert max(map(len, text.splitlines())) <= NARROW
    assert refused(capsys, "explain", index, "fox", "nothing").endswith("there is no document 'nothing'")
    assert refused(capsys, "explain", index, "fox", "-k", 3).endswith("need the id of a document")


def test_explain_takes_the_options_of_a_query(capsys: pytest.CaptureFixture[str], index: str, model: str) -> None:
    pruned = ["--max-terms", 2, "--query-idf", 1.5, "--allow-changed-model", "--json"]
    hit = json.loads(done(capsys, "search", index, "the old fox", *pruned))["hits"][-1]
    found = json.loads(done(capsys, "explain", index, "the old fox", hit["id"], *pruned))
    assert (found["rank"], found["score"]) == (hit["rank"], hit["score"])
    asked = json.loads(done(capsys, "explain", index, "the old fox", *pruned))
    assert asked["active"] == 2
    for match in found["explanation"]["matches"]:
        assert match["query_weight"] in [term["weight"] for term in asked["terms"]]
    refusal = refused(capsys, "explain", model, "the old fox", "--allow-changed-model")
    assert refusal == "vocable: --allow-changed-model goes with an index"


def test_search_like_finds_documents_like_another(capsys: pytest.CaptureFixture[str], index: str) -> None:
    text = done(capsys, "search", index, "--like", "d3", "-k", 2)
    assert [line.split()[0] for line in text.splitlines()[:-2] if line[:3].strip()] == ["1", "2"]
    answer = json.loads(done(capsys, "search", index, "--like", "d3", "-k", 30, "--json"))
    assert (answer["id"], answer["query"]) == ("d3", "like d3")
    assert "d3" not in {hit["id"] for hit in answer["hits"]}
    assert "--like takes the place of a query" in refused(capsys, "search", index, "fox", "--like", "d3")
    assert "there is no document 'd999'" in refused(capsys, "search", index, "--like", "d999")


def test_unknown_words_get_a_suggestion(capsys: pytest.CaptureFixture[str], index: str) -> None:
    assert "\ndid you mean: a librarian\n" in done(capsys, "search", index, "a libarian", "-k", 1)
    assert json.loads(done(capsys, "search", index, "a libarian", "--json"))["suggestion"] == "a librarian"
    assert "suggestion" not in json.loads(done(capsys, "search", index, "a librarian", "--json"))


def test_explain_of_texts_that_share_nothing(
    capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocable, "explain", lambda *texts, wacky: Explanation(0.0, ()))
    assert done(capsys, "explain", model, "old books", "a fox") == "score 0: no shared term\n"


@pytest.mark.slow
def test_encode_and_search_take_a_share_of_the_weight(
    capsys: pytest.CaptureFixture[str], model: str, dataset: str, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    done(capsys, "index", model, dataset, "-o", index, "--mass", 0.4, "--dtype", "float32")
    measured = json.loads(done(capsys, "analyze-postings", index, "--json"))[0]
    done(capsys, "encode", model, dataset, "-o", tmp_path / "encoded", "--mass", 0.4, "--dtype", "float32")
    assert json.loads(done(capsys, "analyze-postings", tmp_path / "encoded", "--json"))[0] == measured
    whole = json.loads(done(capsys, "search", index, "the old fox", "-k", 30, "--json"))
    pruned = ["-k", 30, "--max-terms", 1, "--weights", "sparse", "--explain", "--json"]
    one = json.loads(done(capsys, "search", index, "the old fox", *pruned))
    assert len(one["hits"]) <= len(whole["hits"])
    assert all(len(hit["explanation"]["matches"]) == 1 for hit in one["hits"])


def test_prune_writes_smaller_vectors(capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "small", read_vectors(vectors)
    said = done(capsys, "prune", vectors, "-o", out, "--max-terms", 5, "--mass", 0.5)
    small = read_vectors(out)
    assert abs(small.matrix - prune(whole.matrix, 5, mass=0.5)).max() == 0
    assert (small.ids, small.meta) == (whole.ids, whole.meta)
    assert said == f"{small.matrix.nnz:,} of {whole.matrix.nnz:,} postings kept\nwritten: {out}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["analyze-weights", "v", "--max-terms", "x"],
            "--max-terms must be a whole number, not 'x'",
        ),
        (["analyze-postings", "none"], "none: no such file"),
        (["prune", "v", "-o", "o"], "give --max-terms, --min-weight, --mass or --wacky"),
        (
            ["prune", "v", "-o", "o", "--max-terms", "3", "--wackiest", "3"],
            "--wackiest, --texts and --model go with --wacky",
        ),
        (["prune", "v", "-o", "o", "--wacky", "s"], "--wacky needs --wackiest N and --texts SOURCE"),
        (["prune", "v", "-o", "o", "--mass", "2"], "--mass must be above 0"),
        (["evaluate", "m", "--dataset", "d", "--figure", "f.svg"], "--figure needs --grid"),
        (
            ["evaluate", "m", "--dataset", "d", "--grid", "rescore=99", "--hybrid"],
            "--grid needs models, and excludes --hybrid and --per-query",
        ),
        (["evaluate", "m", "--dataset", "d", "--grid", "k=1"], "--grid: unknown name in 'k=1'"),
        (
            ["evaluate", "m", "--dataset", "d", "--grid", "rescore=99", "--figure", "f.gif"],
            "the name of a figure must end in",
        ),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert line in refused(capsys, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_export_model_writes_a_graph(
    capsys: pytest.CaptureFixture[str], model: str, corpus: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")
    output = tmp_path / "exported"
    command = ["export-model", model, "-o", output, "--texts", corpus]
    text = done(capsys, *command)
    lines = text.splitlines()
    assert re.match(r" *64 texts, \d+ threads?, weights up to ", lines[0])
    assert [line.split()[0] for line in lines if line.startswith(("torch", "onnx"))] == ["torch", "onnx"]
    assert lines[-2:] == [f"written: {output}", f"next: vocable index {output} CORPUS -o INDEX"]
    found = json.loads(done(capsys, *command, "--json"))
    assert found["largest_error"] < 1e-4
    assert f"already there, made with the same settings: {output}" in done(capsys, *command)
    assert "other settings (int8)" in refused(capsys, *command, "--int8")
    assert "pooling and activation" in refused(
        capsys, "rescale", output, "--factor", "2", "-o", tmp_path / "x", "--pooling", "sum"
    )
    assert "an exported model only encodes" in refused(capsys, "rescale", output, "--factor", "2", "-o", tmp_path / "x")
    assert "283 texts" in done(capsys, "index", output, corpus, "-o", tmp_path / "index")
    assert done(capsys, "search", tmp_path / "index", "a fox", "--json")
