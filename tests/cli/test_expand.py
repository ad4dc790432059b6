"""expand, pretrain and search on the command line, with words of any characters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vocable as vo
from vocable.adapt.expand import frequent_words
from vocable.cli import main
from vocable.encoder.output_vocabulary import read_terms


@pytest.fixture
def corpus(tmp_path: Path, toy_texts: list[str]) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(dict.fromkeys(toy_texts)), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *command: object, status: int = 0) -> str:
    assert main([str(word) for word in command]) == status
    printed = capsys.readouterr()
    return printed.err.splitlines()[-1] if status else printed.out.strip()


def test_the_words_of_texts_become_terms_are_pre_trained_and_found(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    expanded, adapted, index = (tmp_path / name for name in ("expanded", "adapted", "index"))
    given = ["expand", backbones["bert"], "--texts", corpus, "--size", 40, "--min-count", 2]
    values = json.loads(run(capsys, *given, "-o", expanded, "--json"))
    assert values["words"] == 40
    assert 0.5 < values["covered"] <= 1
    [made] = vo.provenance(vo.load(expanded))
    assert (made["splitter"], made["init"], made["covered"]) == ("words", "mean", values["covered"])
    printed = run(capsys, *given, "-o", tmp_path / "more").splitlines()
    assert printed[0].startswith(f"{values['covered']:.1%} of the words of the texts, {values['tokens_per_word']:.2f} ")
    assert printed[-1].endswith("--masking whole-word")

    options = ["--steps", 2, "--batch-size", 4, "--masking", "whole-word", "--schedule", "linear"]
    options += ["--schedule-steps", 4, "--passes", 1]
    found = json.loads(run(capsys, "pretrain", expanded, corpus, "-o", adapted, *options, "--json"))
    assert found["held_out"]["after"].keys() == {"all", "first sub-word", "later sub-words"}
    assert found["words"].keys() == {"words", "cut", "without"}
    assert read_terms(adapted / "output_vocabulary.jsonl") == read_terms(expanded / "output_vocabulary.jsonl")
    assert [step["verb"] for step in vo.provenance(vo.load(adapted))] == ["expand", "pretrain"]
    lines = run(capsys, "pretrain", adapted, corpus, "-o", tmp_path / "further", *options).splitlines()
    assert lines[1].startswith(f"words to guess: {found['words']['words']:,}; passed over: ")
    assert [line.partition(" (")[0] for line in lines[2:5]] == [
        "held-out tokens, all", "held-out tokens, first sub-word", "held-out tokens, later sub-words",
    ]  # fmt: skip
    run(capsys, "index", adapted, corpus, "-o", index)
    hits = json.loads(run(capsys, "search", index, "The FOX", "--explain", "--json"))["hits"]
    matches = [match for hit in hits for match in hit["explanation"]["matches"]]
    assert {match["term"] for match in matches} <= set(read_terms(adapted / "output_vocabulary.jsonl"))
    assert all(match["in_query"] is (match["term"] in ("the", "fox")) for match in matches)


def test_words_of_a_file_keep_their_characters(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    words = ["fox", "u.s.", '"it\'s"', "the\x07owl", "\x1b[31mred", "हिन्दी", "naïve"]
    (tmp_path / "words.jsonl").write_text("\n".join(map(json.dumps, words)), encoding="utf-8")
    expanded, index = tmp_path / "expanded", tmp_path / "index"
    run(capsys, "expand", backbones["roberta"], "--words", tmp_path / "words.jsonl", "-o", expanded)
    assert read_terms(expanded / "output_vocabulary.jsonl") == words
    run(capsys, "index", expanded, corpus, "-o", index)
    found = json.loads(run(capsys, "search", index, "The fox", "--explain", "--json"))["hits"]
    assert {match["term"] for hit in found for match in hit["explanation"]["matches"]} <= set(words)
    values = json.loads(run(capsys, "explain", expanded, "U.S. fox", "--json"))["terms"]
    assert {term["term"] for term in values} <= set(words)
    assert all(term["in_text"] is (term["term"] in ("fox", "u.s.")) for term in values)
    shown = run(capsys, "explain", expanded, "U.S. fox")
    assert "\x1b" not in shown
    assert "\x07" not in shown
    if any(term["term"] == "\x1b[31mred" for term in values):
        assert r"\x1b[31mred" in shown


def test_mistakes_are_named(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    model, output, words = backbones["bert"], tmp_path / "out", tmp_path / "words.txt"
    words.write_text("fox\n\nFox\nowl\n", encoding="utf-8")
    for options, message in [
        (["--words", words], f"{words}: not every word can be a term: line 2: an empty string; line 3: 'Fox' is"),
        ([], "give either --texts"),
        (["--texts", corpus, "--words", words], "give either --texts"),
        (["--words", words, "--size", 3], "--size and --min-count go with --texts"),
        (["--texts", corpus, "--init", "semantic"], "--init semantic and --target go together"),
        (["--texts", tmp_path / "no.txt"], "no such file"),
        (["--texts", corpus, "--min-count", 10**6], "no word that is seen 1000000 times"),
    ]:
        assert message in run(capsys, "expand", model, *options, "-o", output, status=2)
    steps = ["--steps", 40, "--batch-size", 32]
    for options, message in [
        ([*steps, "--masking", "whole-word"], "whole-word masking needs an output vocabulary of words"),
        ([*steps, "--passes", 1], "1 pass(es)"),
        ([*steps, "--schedule-steps", 7], "--schedule-steps: the schedule cannot be shorter than the run of 40 steps"),
    ]:
        assert message in run(capsys, "pretrain", model, corpus, "-o", tmp_path / "no", *options, status=2)
    assert not output.exists()
    assert not (tmp_path / "out.partial").exists()


def test_frequent_words_of_the_command_are_those_of_the_function(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path, toy_texts: list[str]
) -> None:
    run(capsys, "expand", backbones["albert"], "--texts", corpus, "--size", 20, "-o", tmp_path / "out")
    tokenizer = vo.load(backbones["albert"]).tokenizer
    expected = frequent_words(dict.fromkeys(toy_texts), tokenizer, size=20).words
    assert read_terms(tmp_path / "out" / "output_vocabulary.jsonl") == expected
