"""The commands that adapt a model, inspect to inference-free: what they print, write and refuse."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from transformers import AutoModelForMaskedLM, AutoTokenizer

import vocable as vo
from tests.by_parts import load_checkpoint, rescale, save_checkpoint
from tests.cli.command_line import done, refused
from vocable.adapt.expand_vocabulary import frequent_words
from vocable.adapt.inspect import inspect
from vocable.adapt.rescale import choose_factor
from vocable.adapt.statistics import probe_texts
from vocable.cli import main
from vocable.encoding.own_terms import read_terms
from vocable.torch_models.asymmetric import static_embedding
from vocable.torch_models.output_vocabulary import NEVER


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> str:
    texts = [text for text in dict.fromkeys(toy_texts) if len(text.split()) >= 8][:32]
    path = tmp_path_factory.mktemp("probe") / "texts.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, backbones: dict[str, Path]) -> str:
    """A folder of BERT with a head 16 times too large."""
    folder = tmp_path_factory.mktemp("large") / "bert"
    mlm, tokenizer = load_checkpoint(backbones["bert"])
    save_checkpoint(rescale(mlm, 1 / 16), tokenizer, folder)
    return str(folder)


@pytest.mark.slow
def test_inspect_prints_the_figures_of_a_model(
    capsys: pytest.CaptureFixture[str], large: str, backbones: dict[str, Path], probe: str
) -> None:
    arguments = ["inspect", large, "--texts", probe, "--target", backbones["roberta"]]
    found = inspect(large, texts=probe, target=backbones["roberta"])
    assert json.loads(done(capsys, *arguments, "--json")) == json.loads(json.dumps(found.to_json()))
    text = done(capsys, *arguments)
    assert text.strip() == str(found).strip()
    assert f"vocable rescale {large} --factor {found.factor} -o bert-rescaled" in text


def test_rescale_writes_the_scaled_model(capsys: pytest.CaptureFixture[str], large: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    values = json.loads(done(capsys, "rescale", large, "-o", output, "--factor", 2.5, "--json"))
    assert values == {"output": str(output), "verb": "rescale", "factor": 2.5}
    before, after = (load_checkpoint(folder)[0].get_output_embeddings() for folder in (large, output))
    assert torch.equal(after.weight, before.weight / 2.5)
    assert torch.equal(after.bias, before.bias)
    assert "other settings (factor)" in refused(capsys, "rescale", large, "-o", output, "--factor", 2)
    again = json.loads(done(capsys, "rescale", large, "-o", output, "--factor", 2.5, "--json"))
    assert again == values


def test_rescale_auto_shows_what_it_tried(
    capsys: pytest.CaptureFixture[str], large: str, probe: str, tmp_path: Path
) -> None:
    texts = Path(probe).read_text(encoding="utf-8").splitlines()
    factor, starts = choose_factor(*load_checkpoint(large), probe_texts(texts))
    arguments = ["rescale", large, "--factor", "auto", "--texts", probe]
    text = done(capsys, *arguments, "-o", tmp_path / "one")
    assert max(map(len, text.splitlines()[:-2])) <= 80
    [row] = [line for line in text.splitlines() if line.strip().startswith(">")]
    assert row.split()[1] == str(factor)
    said = [f"output matrix divided by {factor}", f"written: {tmp_path}/one"]
    assert text.splitlines()[-3:-1] == said
    values = json.loads(done(capsys, *arguments, "-o", tmp_path / "two", "--json"))
    assert values["factor"] == factor
    assert [trial["loss"] for trial in values["trials"]] == [start.loss for start in starts.values()]


@pytest.mark.parametrize("factor", ["0", "-2", "nan", "inf", "half"])
def test_impossible_factors_are_one_line(
    capsys: pytest.CaptureFixture[str], large: str, tmp_path: Path, factor: str
) -> None:
    line = refused(capsys, "rescale", large, "-o", tmp_path / "out", "--factor", factor)
    assert line.startswith("vocable: ")
    assert re.search("--factor must be (above 0|a finite number|auto or a number), not", line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [["inspect"], ["rescale", "-o", "out", "--factor", "auto"]])
def test_a_probe_of_empty_lines_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    large: str,
    tmp_path: Path,
    verb: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n \n\n", encoding="utf-8")
    line = refused(capsys, *verb, large, "--texts", "empty.txt")
    assert line == "vocable: empty.txt: a probe needs at least two different texts of 8 words or more"
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]


def test_a_model_is_moved_and_what_was_made_is_told(
    backbones: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "moved"
    given = [str(backbones["roberta"]), "--target", str(backbones["bert"]), "-o", str(output)]
    assert main(["transfer", *given, "--neighbours", "fox"]) == 0
    printed = capsys.readouterr().out
    assert printed.split("special")[1].split()[:3] == ["5", "5", "100.0%"]
    assert "fox: cut into" in printed
    assert printed.endswith(f"next: vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware\n")
    mlm, tokenizer = AutoModelForMaskedLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    assert mlm.config.vocab_size == len(tokenizer)
    assert main(["transfer", *given]) == 0
    assert "already there, made with the same settings" in capsys.readouterr().out
    assert main(["transfer", *given, "--init", "mean"]) == 2
    assert "was made with other settings (init)" in capsys.readouterr().err


def test_json_has_the_same_figures(
    backbones: dict[str, Path], tmp_path: Path, toy_texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    output, texts = tmp_path / "moved", tmp_path / "texts.txt"
    texts.write_text("\n".join(toy_texts), encoding="utf-8")
    given = [str(backbones["bert"]), "--target", str(backbones["albert"]), "--init", "subtoken", "--texts", str(texts)]
    assert main(["transfer", *given, "-o", str(output), "--neighbours", "▁fox", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    model = vo.load(output)
    [stored], fresh = vo.provenance(model), vo.new_tokens(model)
    assert fresh is not None
    assert found["new_tokens"] == len(fresh) == stored["new_tokens"]
    assert found["overlap"] == stored["overlap"]
    assert found["classes"] == stored["classes"]
    assert (stored["init"], stored["bias"]) == ("subtoken", "prior")
    assert found["neighbours"][0]["token"] == "▁fox"


def test_a_target_without_embeddings_is_one_line(
    backbones: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    AutoTokenizer.from_pretrained(backbones["albert"]).save_pretrained(tmp_path / "alone")
    given = [str(backbones["bert"]), "--target", str(tmp_path / "alone"), "-o", str(tmp_path / "moved")]
    assert main(["transfer", *given]) == 2
    told = "vocable: init='semantic' needs the target's embeddings, and the target is only a tokenizer: use 'subtoken'"
    assert capsys.readouterr().err.splitlines()[-1] == told
    assert not (tmp_path / "moved").exists()


@pytest.mark.slow
def test_the_words_of_texts_become_terms_are_pre_trained_and_found(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    expanded, adapted, index = (tmp_path / name for name in ("expanded", "adapted", "index"))
    given = ["expand-vocabulary", backbones["bert"], "--texts", corpus, "--size", 40, "--min-count", 2]
    values = json.loads(done(capsys, *given, "-o", expanded, "--json"))
    assert values["words"] == 40
    assert 0.5 < values["covered"] <= 1
    [made] = vo.provenance(vo.load(expanded))
    assert (made["splitter"], made["init"], made["covered"]) == ("words", "mean", values["covered"])
    printed = done(capsys, *given, "-o", tmp_path / "more").splitlines()
    assert printed[0].startswith(f"{values['covered']:.1%} of the words of the texts, {values['tokens_per_word']:.2f} ")
    assert printed[-1].endswith("--masking whole-word")

    options = ["--steps", 2, "--batch-size", 4, "--masking", "whole-word", "--schedule", "linear"]
    options += ["--schedule-steps", 4, "--passes", 1]
    found = json.loads(done(capsys, "pretrain", expanded, corpus, "-o", adapted, *options, "--json"))
    assert found["held_out"]["after"].keys() == {"all", "first sub-word", "later sub-words"}
    assert found["words"].keys() == {"words", "cut", "without"}
    assert read_terms(adapted / "output_vocabulary.jsonl") == read_terms(expanded / "output_vocabulary.jsonl")
    assert [step["verb"] for step in vo.provenance(vo.load(adapted))] == ["expand-vocabulary", "pretrain"]
    lines = done(capsys, "pretrain", adapted, corpus, "-o", tmp_path / "further", *options).splitlines()
    assert lines[1].startswith(f"words to guess: {found['words']['words']:,}; passed over: ")
    assert [line.partition(" (")[0] for line in lines[2:5]] == [
        "held-out tokens, all", "held-out tokens, first sub-word", "held-out tokens, later sub-words",
    ]  # fmt: skip
    done(capsys, "index", adapted, corpus, "-o", index)
    hits = json.loads(done(capsys, "search", index, "The FOX", "--explain", "--json"))["hits"]
    matches = [match for hit in hits for match in hit["explanation"]["matches"]]
    assert {match["term"] for match in matches} <= set(read_terms(adapted / "output_vocabulary.jsonl"))
    assert all(match["in_query"] is (match["term"] in ("the", "fox")) for match in matches)


@pytest.mark.slow
def test_words_of_a_file_keep_their_characters(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    words = ["fox", "u.s.", '"it\'s"', "the\x07owl", "\x1b[31mred", "हिन्दी", "naïve"]
    (tmp_path / "words.jsonl").write_text("\n".join(map(json.dumps, words)), encoding="utf-8")
    expanded, index = tmp_path / "expanded", tmp_path / "index"
    done(capsys, "expand-vocabulary", backbones["roberta"], "--words", tmp_path / "words.jsonl", "-o", expanded)
    assert read_terms(expanded / "output_vocabulary.jsonl") == words
    done(capsys, "index", expanded, corpus, "-o", index, warning="does not know the words")
    found = json.loads(done(capsys, "search", index, "The fox", "--explain", "--json"))["hits"]
    assert {match["term"] for hit in found for match in hit["explanation"]["matches"]} <= set(words)
    values = json.loads(done(capsys, "explain", expanded, "U.S. fox", "--json"))["terms"]
    assert {term["term"] for term in values} <= set(words)
    assert all(term["in_text"] is (term["term"] in ("fox", "u.s.")) for term in values)
    shown = done(capsys, "explain", expanded, "U.S. fox")
    assert "\x1b" not in shown
    assert "\x07" not in shown
    if any(term["term"] == "\x1b[31mred" for term in values):
        assert r"\x1b[31mred" in shown


def test_frequent_words_of_the_command_are_those_of_the_function(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path, toy_texts: list[str]
) -> None:
    done(capsys, "expand-vocabulary", backbones["albert"], "--texts", corpus, "--size", 20, "-o", tmp_path / "out")
    tokenizer = vo.load(backbones["albert"]).tokenizer
    expected = frequent_words(list(dict.fromkeys(toy_texts)), tokenizer, size=20).words
    assert read_terms(tmp_path / "out" / "output_vocabulary.jsonl") == expected


def test_mistakes_about_words_are_named(
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
        (["--texts", corpus, "--min-count", 10**6], "1000000 times"),
    ]:
        assert message in refused(capsys, "expand-vocabulary", model, *options, "-o", output)
    steps = ["--steps", 40, "--batch-size", 32]
    for options, message in [
        ([*steps, "--masking", "whole-word"], "expand-vocabulary"),
        ([*steps, "--passes", 1], "1 pass(es)"),
        ([*steps, "--schedule-steps", 7], "--schedule-steps"),
    ]:
        assert message in refused(capsys, "pretrain", model, corpus, "-o", tmp_path / "no", *options)
    assert not output.exists()
    assert not (tmp_path / "out.partial").exists()


def test_vocabulary_writes_a_tokenizer(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines = done(capsys, "train-vocabulary", corpus, "-o", out, "--size", 120).splitlines()
    assert lines[3].split()[0] == "120"
    assert lines[4] == f"written: {out}"
    assert len(AutoTokenizer.from_pretrained(out)) == 120
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert done(capsys, "train-vocabulary", corpus, "-o", out, "--size", 120).splitlines()[:4] == lines[:4]
    assert "other settings (sizes)" in refused(capsys, "train-vocabulary", corpus, "-o", out, "--size", 140)


def test_vocabulary_compares_sizes(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    rows = json.loads(done(capsys, "train-vocabulary", corpus, "--size", "100,140", "--json"))
    assert [row["size"] for row in rows] == [100, 140]
    assert rows[1]["tokens_per_word"] < rows[0]["tokens_per_word"]
    table = done(capsys, "train-vocabulary", corpus, "--size", "100", "--size", "140").splitlines()
    assert table[0].split() == ["rare"]
    assert table[1].split() == ["size", "tokens/word", "tokens"]
    assert [line.split()[:2] for line in table[3:]] == [
        [str(row["size"]), f"{row['tokens_per_word']:.3f}"] for row in rows
    ]
    one = json.loads(
        done(capsys, "train-vocabulary", corpus, "-o", tmp_path / "out", "--size", 300, "--algorithm", "bpe", "--json")
    )
    assert one["output"] == str(tmp_path / "out")
    assert np.isclose(one["tokens_per_word"], one["tokens"] / one["words"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "train-vocabulary needs --size"),
        (["--size", "100,200", "-o", "o"], "--output"),
        (["--size", "100,x"], "--size must be a whole number, not 'x'"),
    ],
)
def test_impossible_vocabularies_are_refused(
    capsys: pytest.CaptureFixture[str], corpus: Path, options: list[str], line: str
) -> None:
    assert refused(capsys, "train-vocabulary", corpus, *options).startswith(f"vocable: {line}")


@pytest.fixture
def transferred(backbones: dict[str, Path], tmp_path: Path) -> Path:
    """A model that says which of its tokens are new."""
    folder = tmp_path / "transferred"
    folder.mkdir()
    for path in backbones["bert"].iterdir():
        if path.name != "config.json":
            (folder / path.name).symlink_to(path)
    new = np.packbits(np.bincount(range(10, 60)) > 0).tobytes()
    config = json.loads((backbones["bert"] / "config.json").read_text(encoding="utf-8"))
    config["vocable"] = {"provenance": [], "new_tokens": base64.b64encode(new).decode()}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_pretrain_and_calibrate(capsys: pytest.CaptureFixture[str], model: str, corpus: Path, tmp_path: Path) -> None:
    adapted, calibrated = tmp_path / "adapted", tmp_path / "calibrated"
    command = ["pretrain", model, corpus, corpus, "-o", adapted, "--batch-size", 4, "--max-length", 16]
    assert done(capsys, *command, "--steps", 2, "--learning-rate", 0.01).startswith("pre-trained for 2 steps")
    before, after = (AutoModelForMaskedLM.from_pretrained(place).state_dict() for place in (model, adapted))
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    text = done(capsys, "calibrate", adapted, corpus, "-o", calibrated, "--activation-rate", 0.05, "--json")
    values = json.loads(text)
    assert values["after"]["share"] == pytest.approx(0.05, abs=0.002)
    one, other = (
        AutoModelForMaskedLM.from_pretrained(place).get_output_embeddings() for place in (adapted, calibrated)
    )
    shifted = (one.bias - other.bias).detach().numpy()[one.bias.detach().numpy() > NEVER]  # but special tokens
    np.testing.assert_allclose(shifted, np.full(len(one.bias) - 5, values["shift"]), rtol=1e-5, atol=1e-6)
    again = refused(capsys, "calibrate", adapted, corpus, "-o", calibrated, "--shift", 1)
    others = f"{calibrated} was made with other settings (activation_rate, shift)"
    assert again == f"vocable: {others}: name another output, or remove it"
    assert "\nalready there, made with the same settings: " in done(
        capsys, "calibrate", adapted, corpus, "-o", calibrated, "--activation-rate", 0.05
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapted", "calibrated"]


def test_pretraining_goes_on_only_with_its_own_settings(
    capsys: pytest.CaptureFixture[str], model: str, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "settings.json").write_text('{"steps": 9}', encoding="utf-8")
    line = refused(capsys, "pretrain", model, corpus, "-o", tmp_path / "out", "--steps", 2)
    assert line.startswith(f"vocable: {tmp_path}/out.partial was made with other settings (batch_size, ")


def test_a_transferred_model_stays_one(
    capsys: pytest.CaptureFixture[str], transferred: Path, corpus: Path, tmp_path: Path
) -> None:
    adapted, calibrated = tmp_path / "adapted", tmp_path / "calibrated"
    options = ["--steps", 2, "--batch-size", 4, "--masking", "overlap-aware", "--trainable", "embeddings"]
    values = json.loads(done(capsys, "pretrain", transferred, corpus, "-o", adapted, *options, "--json"))
    assert values["steps"] == 2
    assert values["held_out"].keys() == {"before", "after"}
    assert values["held_out"]["before"].keys() == values["held_out"]["after"].keys() == {"shared", "new"}
    assert values["held_out"]["after"]["new"].keys() == {"tokens", "loss", "accuracy"}
    kept = [json.loads(line) for line in (adapted / "pretrain.jsonl").read_text().splitlines()]
    losses = [line["held_out_loss_new"] for line in kept if "held_out_loss_new" in line]
    assert losses[-1] == pytest.approx(values["held_out"]["after"]["new"]["loss"])
    again = done(capsys, "pretrain", adapted, corpus, "-o", tmp_path / "further", *options)
    assert [line.partition(" (")[0] for line in again.splitlines()[1:3]] == [
        "held-out tokens, shared",
        "held-out tokens, new",
    ]
    text = done(capsys, "calibrate", adapted, corpus, "-o", calibrated, "--activation-rate", 0.02, "--level", "token")
    assert "-> 2.00%\nactive terms of a token: mean " in text
    of_the_first = ["--activation-rate", 0.1, "--pooling", "cls", "--json"]
    found = json.loads(done(capsys, "calibrate", adapted, corpus, "-o", tmp_path / "first", *of_the_first))
    assert (found["pooling"], found["after"]["share"]) == ("cls", pytest.approx(0.1, abs=0.01))
    shutil.rmtree(tmp_path / "first")
    for folder in (adapted, calibrated):
        new = vo.new_tokens(vo.load(folder))
        assert new is not None
        assert new.tolist() == list(range(10, 60))
    assert {path.name for path in tmp_path.iterdir()} == {
        "adapted", "calibrated", "further", "transferred",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--masking", "overlap-aware"], "overlap-aware masking needs"),
        (["--train-bias"], "--train-bias needs trainable: embeddings"),
        (["--steps", 0], "--steps must be at least 1, not 0"),
        (["--new-token-weight", 0], "--new-token-weight must be above 0, not 0.0"),
    ],
)
def test_impossible_pretraining_is_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path,
    options: list[object], line: str,
) -> None:  # fmt: skip
    command = ["pretrain", backbones["bert"], corpus, "-o", tmp_path / "out", "--steps", 1, *options]
    assert refused(capsys, *command).startswith(f"vocable: {line}")


def test_what_is_active_is_told(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    command = ["calibrate", backbones["bert"], corpus, "-o", tmp_path / "out", "--shift", 1, "--json"]
    values = json.loads(done(capsys, *command))
    size = len(AutoTokenizer.from_pretrained(backbones["bert"]))
    assert (values["level"], values["shift"]) == ("pooled", 1.0)
    assert values["after"]["share"] < values["before"]["share"]
    for when in ("before", "after"):
        active = values[when]
        assert active["mean"] == pytest.approx(size * active["share"])
        assert active["p99"] > active["mean"]


def test_a_probe_of_empty_lines_is_named(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path
) -> None:
    empty, output = tmp_path / "empty.txt", tmp_path / "out"
    empty.write_text("\n \n\n", encoding="utf-8")
    said = refused(capsys, "calibrate", backbones["bert"], empty, "-o", output, "--activation-rate", 0.05)
    assert said == f"vocable: {empty}: no text to probe with"
    assert not output.exists()


@pytest.mark.slow
def test_one_command_makes_it_and_every_verb_takes_it(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], dataset: str, tmp_path: Path
) -> None:
    place, made, index = dataset, tmp_path / "made", tmp_path / "index"
    text = done(capsys, "make-inference-free", backbones["modernbert"], "--texts", place, "-o", made)
    assert "tokens have a weight, and no encoder reads a query\nwritten: " in text
    assert {path.name for path in tmp_path.iterdir()} == {"made"}
    query = "the old fox reads books"
    stock = SparseEncoder(str(made), device="cpu")
    tokens = set(stock.tokenizer.tokenize(query))
    found = json.loads(done(capsys, "explain", made, query, "--json"))
    weights = {term["term"]: term["weight"] for term in found["terms"]}
    assert weights.keys() == tokens
    decoded = dict(stock.decode(stock.encode_query(query)))
    assert weights == pytest.approx(decoded)
    pair = json.loads(done(capsys, "explain", made, query, query, "--json"))
    score = float(stock.similarity(stock.encode_query([query]), stock.encode_document([query])))
    assert pair["score"] == pytest.approx(score, rel=1e-2)  # documents may be encoded in bfloat16
    done(capsys, "index", made, place, "-o", index, warning="does not know the words")
    hits = json.loads(done(capsys, "search", index, query, "-k", 3, "--json"))
    assert len(hits["hits"]) == 3
    [measured] = json.loads(done(capsys, "evaluate", made, "--dataset", place, "-m", "nDCG@10", "--json"))["systems"]
    assert measured["name"] == "made"
    assert 4 < measured["cost"]["query_terms"] < 40


def test_binary_queries_learnable_if_asked(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path
) -> None:
    command = ["make-inference-free", backbones["bert"], "--weights", "ones", "--trainable", "-o", tmp_path / "made"]
    found = json.loads(done(capsys, *command, "--json"))
    table = SparseEncoder(str(tmp_path / "made"), device="cpu")[0].sub_modules["query"][0]
    assert (found["trainable"], found["weights"]) == (True, "ones")
    assert found["tokens"] == len(table.tokenizer) - len(table.tokenizer.all_special_ids)
    assert set(np.unique(table.weight.detach().numpy())) == {0, 1}
    assert table.weight.requires_grad


def test_mean_weights_of_the_queries_of_examples(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path
) -> None:
    queries = sorted(set(toy_texts))[:10]
    rows = [{"query": query, "positive": "what is found"} for query in queries]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--weights", "mean", "--texts", tmp_path / "pairs.jsonl"]
    found = json.loads(
        done(capsys, "make-inference-free", backbones["bert"], *options, "-o", tmp_path / "made", "--json")
    )
    assert (found["weights"], found["queries"]) == ("mean", 10)
    expected = vo.make_inference_free(vo.load(backbones["bert"], device="cpu"), queries, weights="mean")
    table, own = (static_embedding(model, "query") for model in (vo.load(tmp_path / "made", device="cpu"), expected))
    assert table is not None
    assert own is not None
    np.testing.assert_allclose(table.weight.detach().numpy(), own.weight.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "give either --texts, for weights idf or mean, or --weights ones"),
        (
            ["--weights", "ones", "--texts", "pydocs:"],
            "give either --texts, for weights idf or mean, or --weights ones",
        ),
        (["--texts", "none.jsonl"], "none.jsonl: no such file"),
    ],
)
def test_impossible_weights_are_refused(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path, options: list[str], line: str
) -> None:
    command = ["make-inference-free", backbones["bert"], "-o", tmp_path / "out", *options]
    assert refused(capsys, *command).startswith(f"vocable: {line}")
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_left_alone(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").touch()
    command = ["make-inference-free", backbones["bert"], "--weights", "ones", "-o", tmp_path]
    assert refused(capsys, *command).startswith(f"vocable: {tmp_path} already exists and is something else: ")
