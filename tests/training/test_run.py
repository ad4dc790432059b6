"""Retrieval training: the losses it logs, what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

from tests.toys import killed
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, CollapseError, DataError, ModelError, RecipeError
from vocable.evaluation.plans import evaluate_system
from vocable.torch_models.asymmetric import asymmetric, static_embedding
from vocable.torch_models.fuse import splade_modules
from vocable.torch_models.inference_free import make_inference_free
from vocable.training.callbacks import COMPLETE, ValidWeights
from vocable.training.objective import Monitor
from vocable.training.recipe import Recipe
from vocable.training.recipe_files import make_recipe
from vocable.training.run import queries_learn_apart
from vocable.training.train import train


@pytest.fixture
def examples(tmp_path: Path, toy_texts: list[str]) -> str:
    """48 pairs: a sentence asks for itself with a number in front."""
    texts = sorted(set(toy_texts))[:48]
    rows = [{"query": text, "positive": f"chapter {i} {text}"} for i, text in enumerate(texts)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def recipe(model: Path, examples: str, **parts: Any) -> Recipe:
    training = {"steps": 4, "batch_size": 8, "log_every": 1, "save_every": 2, "learning_rate": 1e-3}
    training |= parts.pop("training", {})
    values = {"model": str(model), "data": {"examples": [examples]}, "training": training, **parts}
    return make_recipe(values)


def log(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "loss" in line]


@pytest.mark.slow
def test_a_model_learns_and_is_left_whole(backbones: dict[str, Path], examples: str, tmp_path: Path) -> None:
    output = tmp_path / "model"
    regularizers = {"query": 0.01, "document": 0.02}
    model = train(recipe(backbones["bert"], examples, training={"steps": 30, "regularizers": regularizers}), output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "pairs.jsonl"]
    lines = log(output)
    assert [line["step"] for line in lines] == list(range(1, 31))
    assert np.mean([line["base_loss"] for line in lines[-5:]]) < 0.75 * lines[0]["base_loss"]
    # The ramp is quadratic over the first third, and the parts of the loss add up to it.
    for line in lines:
        assert line["query_regularizer_weight"] == pytest.approx(0.01 * min(1.0, (line["step"] - 1) / 10) ** 2)
        parts = line["base_loss"] + line["query_regularizer_loss"] + line["document_regularizer_loss"]
        assert line["loss"] == pytest.approx(parts, abs=2e-4)
    stock = SparseEncoder(str(output), device="cpu")
    texts = ["the old fox reads books", "a"]
    np.testing.assert_allclose(
        encode(model, texts, "document").toarray(), stock.encode_document(texts).to_dense().numpy(), atol=1e-5
    )


def test_the_card_quotes_no_texts_and_names_no_folders(
    backbones: dict[str, Path], examples: str, tmp_path: Path
) -> None:
    train(recipe(backbones["bert"], examples), tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"- train: start {backbones['bert'].name}, steps 4, batch size 8, learning rate 0.001" in card
    texts = [value for line in Path(examples).read_text().splitlines() for value in json.loads(line).values()]
    assert not [text for text in [*texts, str(tmp_path), str(backbones["bert"])] if text in card]


def test_quality_is_measured_on_held_out_pairs(
    backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"query": text, "positive": f"chapter {i} {text}"} for i, text in enumerate(sorted(set(toy_texts))[:96])]
    examples = str(tmp_path / "pairs.jsonl")
    Path(examples).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for rate, level in ((1e-6, "INFO"), (1.0, "WARNING")):
        caplog.clear()
        settings = {"learning_rate": rate, "guard": "off", "document_length": 65 if level == "WARNING" else 64}
        train(recipe(backbones["albert"], examples, training=settings), tmp_path / level)
        cut = [record for record in caplog.records if record.name == "vocable.training.run"]
        [said] = [record for record in caplog.records if record.name == "vocable.training.outcome"]
        beyond = "training.document_length: the model has 64 positions, where texts are cut, not 65"
        assert [record.getMessage() for record in cut] == [beyond] * (level == "WARNING")
        assert said.levelname == level
        assert re.match(r"\d+% of 9 held-out queries find their own document first, \d+% before", said.message)
        assert said.message.endswith("lower training.learning_rate from 1 to 0.1") == (level == "WARNING")


@pytest.mark.parametrize("log_every", [1, 100])
def test_a_training_whose_numbers_are_not_finite_fails(
    backbones: dict[str, Path], examples: str, tmp_path: Path, log_every: int
) -> None:
    settings = {"learning_rate": 1e30, "guard": "off", "log_every": log_every}
    with pytest.raises(CollapseError, match=r"learning_rate .*1e\+30 .*1e\+29$"):
        train(recipe(backbones["bert"], examples, training=settings), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_result_carries_lengths_and_type(backbones: dict[str, Path], examples: str, tmp_path: Path) -> None:
    saved = {"query_length": 7, "document_length": 9, "dtype": "bfloat16"}
    train(recipe(backbones["distilbert"], examples, saved=saved), tmp_path / "model")
    stock = SparseEncoder(str(tmp_path / "model"), device="cpu")
    assert (stock[0].query_length, stock[0].document_length, stock.dtype) == (7, 9, torch.float32)
    assert b'"BF16"' in (tmp_path / "model" / "model.safetensors").read_bytes()[:4000]


def test_the_result_carries_how_many_terms_are_kept(backbones: dict[str, Path], examples: str, tmp_path: Path) -> None:
    saved = {"query_terms": 3, "document_terms": 5}
    model = train(recipe(backbones["bert"], examples, saved=saved), tmp_path / "model")
    stock = SparseEncoder(str(tmp_path / "model"), device="cpu")
    texts = ["the old fox reads books", "a librarian indexes sparse vectors"]
    for role, k, all_terms in (("query", 3, stock.encode_query), ("document", 5, stock.encode_document)):
        everything = all_terms(texts).to_dense().numpy()
        kept = encode(model, texts, role).toarray()
        assert ((everything > 0).sum(axis=1) > k).all()
        np.testing.assert_allclose(np.sort(kept)[:, -k:], np.sort(everything)[:, -k:], atol=1e-5)
        assert ((kept > 0).sum(axis=1) == k).all()
        np.testing.assert_allclose(encode(model, texts, role, max_terms=10_000).toarray(), everything, atol=1e-5)


def test_of_few_examples_nothing_is_measured(
    backbones: dict[str, Path], examples: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(recipe(backbones["bert"], examples), tmp_path / "model")
    assert caplog.records[-1].getMessage() == "no accuracy: 4 examples are held out, and 8 are needed"


@pytest.mark.slow
@pytest.mark.parametrize("lookup", [False, True])
def test_a_model_keeps_the_lengths_and_limits_that_it_had(
    backbones: dict[str, Path], examples: str, tmp_path: Path, lookup: bool
) -> None:
    start = load(backbones["bert"], device="cpu")
    start[0].query_length, start[0].document_length = 20, 50
    start[0].auto_model.config.active_terms = {"query": 4, "document": 7}
    start[0].auto_model.config.query_idf = 0.5
    if lookup:
        start = make_inference_free(start, weights="ones", trainable=True)
        next(iter(start[0].sub_modules["query"])).tokenizer.model_max_length = 20
    start.save_pretrained(str(tmp_path / "start"))
    lengths = {"query_length": 10, "document_length": 12}  # of the training alone
    given = {"saved": {"document_terms": 6}, "training": lengths}
    model = train(recipe(tmp_path / "start", examples, **given), tmp_path / "model")
    query, document = TextEncoder(model, "query"), TextEncoder(model)
    assert (query.max_length, document.max_length) == (20, 50)
    assert (query.max_terms, document.max_terms, query.query_idf) == (None if lookup else 4, 6, 0.5)
    model = train(recipe(tmp_path / "start", examples, saved=lengths, training={"steps": 1}), tmp_path / "shorter")
    assert (TextEncoder(model, "query").max_length, TextEncoder(model).max_length) == (10, 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
def test_the_result_can_be_a_mean_with_the_start(
    name: str, backbones: dict[str, Path], examples: str, tmp_path: Path
) -> None:
    learned, mean = (
        train(recipe(backbones[name], examples, saved={"start_share": share}), tmp_path / str(share))
        for share in (0.0, 0.25)
    )
    start, moved = load(backbones[name]).state_dict(), learned.state_dict()
    assert any((moved[key] - start[key]).abs().max() > 1e-4 for key in start if start[key].is_floating_point())
    for key, found in mean.state_dict().items():
        expected = 0.75 * moved[key].double() + 0.25 * start[key].double()
        np.testing.assert_allclose(found.double(), expected, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_frozen_embeddings_stay_while_the_encoder_learns(
    backbones: dict[str, Path], examples: str, tmp_path: Path, name: str, micro_batch: int | None
) -> None:
    parts = {"freeze_embeddings": True, "micro_batch": micro_batch}
    learned = train(recipe(backbones[name], examples, training=parts), tmp_path / "model")[0].auto_model
    start = load(backbones[name])[0].auto_model
    rows = {"table": learned.get_input_embeddings(), "decoder": learned.get_output_embeddings()}
    before = {"table": start.get_input_embeddings(), "decoder": start.get_output_embeddings()}
    for part, module in rows.items():
        assert torch.equal(module.weight, before[part].weight.to(module.weight)), part
    changed = [
        weight_name
        for (weight_name, weight), old in zip(learned.named_parameters(), start.parameters(), strict=True)
        if not torch.equal(weight, old.to(weight))
    ]
    assert len(changed) > 0.7 * len([*learned.parameters()])


@pytest.mark.parametrize("pooling", ["max", "cls"])
def test_adaptation_comes_before_training(
    backbones: dict[str, Path], examples: str, tmp_path: Path, pooling: str
) -> None:
    parts = {
        "pooling": pooling,
        "pretrain": {"texts": [examples], "steps": 2, "batch_size": 4, "max_length": 16},
        "calibrate": {"texts": examples, "activation_rate": 0.02},
    }
    size = SparseEncoder(str(backbones["bert"]), device="cpu")[0].auto_model.config.vocab_size
    train(recipe(backbones["bert"], examples, training={"learning_rate": 1e-9}, **parts), tmp_path / "model")
    # Calibrated to 2 % of the vocabulary on these very texts, and not moved by so small a rate.
    assert log(tmp_path / "model")[0]["document_terms"] == pytest.approx(0.02 * size, rel=0.5)
    adapting = [json.loads(line) for line in (tmp_path / "model" / "pretrain.jsonl").read_text().splitlines()]
    assert [line["step"] for line in adapting if "held_out_loss" in line] == [2]


def test_a_finished_output_is_used_as_it_is(backbones: dict[str, Path], examples: str, tmp_path: Path) -> None:
    train(recipe(backbones["bert"], examples), tmp_path / "model")
    written = (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns
    train(recipe(backbones["bert"], examples), tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(ArgumentError):
        train(recipe(backbones["bert"], examples, seed=1), tmp_path / "model")


def test_an_output_that_is_there_is_not_overwritten(backbones: dict[str, Path], examples: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").touch()
    with pytest.raises(ArgumentError):
        train(recipe(backbones["bert"], examples), tmp_path / "model")


def test_the_work_of_another_recipe_is_not_gone_on_with(
    backbones: dict[str, Path], examples: str, tmp_path: Path
) -> None:
    other = tmp_path / "model.partial"
    other.mkdir()
    (other / "recipe.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ArgumentError):
        train(recipe(backbones["bert"], examples), tmp_path / "model")
    train(recipe(backbones["bert"], examples), tmp_path / "model", resume=False)
    assert not other.exists()


def test_a_null_is_kept_in_the_recipe_beside_the_model(
    backbones: dict[str, Path], examples: str, tmp_path: Path
) -> None:
    """Were it left out, the default would take its place, and the finished run would be that of another recipe."""
    run = recipe(backbones["bert"], examples, evaluation={"datasets": ["beir:none"], "every": None})
    train(run, tmp_path / "model")
    kept = Recipe.model_validate_json((tmp_path / "model" / "recipe.json").read_bytes())
    assert kept.evaluation is not None
    assert kept.evaluation.every is None
    before = (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns
    train(run, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_examples_that_fill_no_batch_are_refused(backbones: dict[str, Path], tmp_path: Path) -> None:
    rows = [{"query": "the same question", "positive": f"answer {i}"} for i in range(16)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match=r"data\.examples .*batch_size 8"):
        train(recipe(backbones["bert"], str(path)), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_examples_that_share_texts_still_make_every_step(backbones: dict[str, Path], tmp_path: Path) -> None:
    """A pass over 16 examples, 14 of one query, fills two batches of 2; three passes are fewer than the 8 steps."""
    rows = [{"query": "the same question" if i < 14 else f"question {i}", "positive": f"answer {i}"} for i in range(16)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    settings = {"steps": 8, "batch_size": 2}
    data = {"examples": [str(path)], "held_out": 0}
    train(recipe(backbones["bert"], str(path), training=settings, data=data), tmp_path / "model")
    assert [line["step"] for line in log(tmp_path / "model")] == list(range(1, 9))


@pytest.fixture
def collection(examples: str, tmp_path: Path) -> Path:
    """The examples as a collection of BEIR's layout."""
    pairs = [json.loads(line) for line in Path(examples).read_text(encoding="utf-8").splitlines()]
    collection = tmp_path / "collection"
    (collection / "qrels").mkdir(parents=True)
    documents = [json.dumps({"_id": f"d{i}", "text": pair["positive"]}) for i, pair in enumerate(pairs)]
    queries = [json.dumps({"_id": f"q{i}", "text": pair["query"]}) for i, pair in enumerate(pairs)]
    judgments = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(len(pairs)))]
    (collection / "corpus.jsonl").write_text("\n".join(documents), encoding="utf-8")
    (collection / "queries.jsonl").write_text("\n".join(queries), encoding="utf-8")
    (collection / "qrels" / "test.tsv").write_text("\n".join(judgments), encoding="utf-8")
    return collection


def test_the_first_and_the_last_step_are_logged_whatever_lies_between_lines(
    backbones: dict[str, Path], examples: str, tmp_path: Path
) -> None:
    train(recipe(backbones["bert"], examples, training={"steps": 5, "log_every": 3}), tmp_path / "five")
    train(recipe(backbones["bert"], examples, training={"steps": 1, "log_every": 3}), tmp_path / "one")
    assert [line["step"] for line in log(tmp_path / "five")] == [1, 3, 5]
    assert [line["step"] for line in log(tmp_path / "one")] == [1]
    assert (tmp_path / "one" / "training.png").exists()


def test_quality_is_measured_during_training(
    backbones: dict[str, Path], examples: str, collection: Path, tmp_path: Path
) -> None:
    evaluation = {"dataset": f"beir:{collection}", "measures": ["nDCG@10", "R@5"], "every": 4}
    model = train(recipe(backbones["bert"], examples, training={"steps": 8}, evaluation=evaluation), tmp_path / "model")
    lines = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = {line["step"]: line for line in lines if "nDCG@10" in line}
    assert sorted(measured) == [4, 8]
    final = evaluate_system(model, f"beir:{collection}", ["nDCG@10", "R@5"]).values
    assert {name: measured[8][name] for name in final} == pytest.approx(dict(final), abs=1e-6)


@pytest.mark.parametrize("rate", [3e-4, 0.05])
def test_the_best_state_is_kept(
    backbones: dict[str, Path], examples: str, collection: Path, tmp_path: Path, rate: float
) -> None:
    """At the higher rate the model gets worse, and the last state is not the best."""
    evaluation = {"dataset": f"beir:{collection}", "measures": ["RR@10"], "every": 2, "best": True}
    training = {"steps": 7, "save_every": 3, "learning_rate": rate, "guard": "off"}
    run = recipe(backbones["bert"], examples, training=training, evaluation=evaluation)
    model = train(run, tmp_path / "model")
    lines = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = {line["step"]: line["RR@10"] for line in lines if "RR@10" in line}
    assert sorted(measured) == [2, 4, 6, 7]
    assert rate == 3e-4 or measured[7] < max(measured.values())
    assert evaluate_system(model, f"beir:{collection}", ["RR@10"]).values["RR@10"] == pytest.approx(
        max(measured.values()), abs=1e-6
    )
    with pytest.raises(RecipeError):
        recipe(backbones["bert"], examples, evaluation=evaluation | {"every": None})


@pytest.mark.slow
@pytest.mark.parametrize("batch", [3, 6])  # before a checkpoint, and between one and a state that was measured
def test_the_best_state_is_the_same_after_a_kill(
    backbones: dict[str, Path], examples: str, collection: Path, tmp_path: Path, batch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    evaluation = {"dataset": f"beir:{collection}", "measures": ["RR@10"], "every": 2, "best": True}
    training = {"steps": 7, "save_every": 3, "learning_rate": 0.05, "guard": "off"}
    run = recipe(backbones["bert"], examples, training=training, evaluation=evaluation)
    expected = train(run, tmp_path / "whole").state_dict()
    see, seen = Monitor.see, list[object]()

    def kill(*arguments: Any) -> None:
        seen.append(see(*arguments))
        if len(seen) == batch:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "see", kill)
        with pytest.raises(KeyboardInterrupt):
            train(run, tmp_path / "killed")
    found = train(run, tmp_path / "killed").state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    lines = [json.loads(line) for line in (tmp_path / "killed" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines if "RR@10" in line] == [2, 4, 6, 7]


@pytest.fixture
def examples_query_encoder(tmp_path: Path, toy_texts: list[str]) -> str:
    """48 pairs: a sentence asks for itself with a number in front."""
    texts = sorted(set(toy_texts))[:48]
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": text, "positive": f"chapter {i} {text}"} for i, text in enumerate(texts)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def recipe_query_encoder(model: Path, examples: str, **parts: Any) -> Recipe:
    training = {"steps": 3, "batch_size": 8, "learning_rate": 1e-3}
    training |= {"regularizers": {"query": 0, "document": 0.01}} | parts.pop("training", {})
    return make_recipe({"model": str(model), "data": {"examples": [examples]}, "training": training, **parts})


def read(examples: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in Path(examples).read_text(encoding="utf-8").splitlines()]


def binary_tokens(model: SparseEncoder, texts: list[str]) -> list[int]:
    """The tokens that occur in texts."""
    tokenizer = table(model).tokenizer
    return sorted({token for ids in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in ids})


def table(model: SparseEncoder) -> SparseStaticEmbedding:
    found = static_embedding(model, "query")
    assert found is not None
    return found


def test_frozen_idf_stays_to_the_bit_while_documents_learn(
    backbones: dict[str, Path], examples_query_encoder: str, tmp_path: Path
) -> None:
    parts = {
        "queries": {"weights": "idf", "corpus": examples_query_encoder},
        "saved": {"dtype": "bfloat16", "query_length": 5},
    }
    made = recipe_query_encoder(backbones["distilbert"], examples_query_encoder, training={"micro_batch": 4}, **parts)
    model = train(made, tmp_path / "model")
    positives = [line["positive"] for line in read(examples_query_encoder)]
    untrained = make_inference_free(load(backbones["distilbert"]), positives)
    assert torch.equal(table(model).weight, table(untrained).weight)
    assert table(model).frozen
    before, after = (encode(one, positives[:4], dtype="float32").toarray() for one in (untrained, model))
    assert not np.allclose(before, after, atol=0.01)
    stock = SparseEncoder(str(tmp_path / "model"), device="cpu")
    query = "the old fox reads books at night in the rain"
    tokens = table(model).tokenizer.tokenize(query)
    assert len(set(tokens[:5])) == encode(model, [query], role="query").nnz < len(set(tokens))
    np.testing.assert_array_equal(
        encode(model, [query], role="query").toarray(), stock.encode_query([query]).to_dense().numpy()
    )


def test_trainable_weights_learn_at_a_rate_of_their_own(
    backbones: dict[str, Path], examples_query_encoder: str, tmp_path: Path
) -> None:
    queries = {"weights": "ones", "trainable": True, "learning_rate": 0.3}
    training = {"learning_rate": 1e-9, "weight_decay": 0, "warmup_share": 0}
    model = train(
        recipe_query_encoder(backbones["bert"], examples_query_encoder, queries=queries, training=training),
        tmp_path / "model",
    )
    weights, special = table(model).weight.detach().numpy(), table(model).tokenizer.all_special_ids
    asked = binary_tokens(model, [line["query"] for line in read(examples_query_encoder)])
    assert weights.min() >= 0
    assert not weights[special].any()
    assert np.abs(weights[asked] - 1).max() > 0.1
    never = np.setdiff1d(np.arange(len(weights)), [*asked, *special])
    assert len(never) > 10
    np.testing.assert_array_equal(weights[never], 1)
    texts = ["the old fox reads books", "a librarian"]
    vectors, untrained = (encode(one, texts, dtype="float32").toarray() for one in (model, load(backbones["bert"])))
    np.testing.assert_allclose(vectors, untrained, atol=1e-4)


@pytest.mark.parametrize("own", [True, False])
def test_documents_that_are_frozen_stay_as_they_are(
    backbones: dict[str, Path], examples_query_encoder: str, tmp_path: Path, own: bool
) -> None:
    queries = {"model": str(backbones["distilbert"])} if own else {"weights": "mean", "trainable": True}
    parts = {"queries": queries | {"freeze_documents": True}, "training": {"learning_rate": 0.01, "warmup_share": 0}}
    model = train(recipe_query_encoder(backbones["bert"], examples_query_encoder, **parts), tmp_path / "model")
    texts = [line["query"] for line in read(examples_query_encoder)]
    found, before = (encode(one, texts, dtype="float32").toarray() for one in (model, load(backbones["bert"])))
    np.testing.assert_array_equal(found, before)
    start = (
        asymmetric(load(backbones["distilbert"]), load(backbones["bert"]))
        if own
        else make_inference_free(load(backbones["bert"]), texts, weights="mean")
    )
    learned, before = (encode(one, texts, "query", dtype="float32").toarray() for one in (model, start))
    assert not np.allclose(learned, before, atol=1e-3)
    if not own:
        np.testing.assert_allclose(learned, before, atol=0.2)  # it began there


def test_weights_stay_valid_after_any_step(backbones: dict[str, Path]) -> None:
    model = make_inference_free(load(backbones["bert"]), weights="ones", trainable=True)
    weights = table(model).weight
    with torch.no_grad():
        weights[:] = torch.linspace(-1, 1, len(weights))
    ValidWeights().on_step_end(*[None] * 3, model=model)
    expected = np.maximum(np.linspace(-1, 1, len(weights)), 0)
    expected[table(model).tokenizer.all_special_ids] = 0
    np.testing.assert_allclose(weights.detach().numpy(), expected, atol=1e-6)


def test_trainable_query_encoders_learn_apart_from_the_documents(backbones: dict[str, Path]) -> None:
    bert, distilbert = load(backbones["bert"]), load(backbones["distilbert"])
    assert not queries_learn_apart(bert)
    assert not queries_learn_apart(make_inference_free(bert, weights="ones"))
    assert queries_learn_apart(make_inference_free(bert, weights="ones", trainable=True))
    assert queries_learn_apart(asymmetric(distilbert, bert))


def test_queries_may_have_an_encoder_of_their_own(
    backbones: dict[str, Path], examples_query_encoder: str, tmp_path: Path
) -> None:
    queries = {"model": str(backbones["distilbert"]), "learning_rate": 1e-9}
    model = train(recipe_query_encoder(backbones["bert"], examples_query_encoder, queries=queries), tmp_path / "model")
    assert [type(transformer.auto_model).__name__ for transformer, _ in splade_modules(model)] == [
        "DistilBertForMaskedLM",
        "BertForMaskedLM",
    ]
    texts = ["the old fox reads books", "a librarian"]
    untouched, changed = load(backbones["distilbert"]), load(backbones["bert"])
    np.testing.assert_allclose(
        encode(model, texts, "query", dtype="float32").toarray(),
        encode(untouched, texts, dtype="float32").toarray(),
        atol=1e-4,
    )
    assert not np.allclose(encode(model, texts).toarray(), encode(changed, texts).toarray(), atol=0.01)
    stock = SparseEncoder(str(tmp_path / "model"), device="cpu")
    for role, method in (("query", stock.encode_query), ("document", stock.encode_document)):
        found = encode(model, texts, role, dtype="float32").toarray()
        np.testing.assert_allclose(found, method(texts).to_dense().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_queries_and_pooling(
    backbones: dict[str, Path], examples_query_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: dict[str, Any] = {
        "queries": {"weights": "ones", "trainable": True, "learning_rate": 0.01},
        "pooling": "mean-before-head",
        "activation": "log1p_relu",
        "calibrate": {"texts": examples_query_encoder, "shift": -2},  # so that the mean of a text has active terms
    }
    parts["training"] = {"steps": 2, "save_every": 1}
    whole = train(recipe_query_encoder(backbones["bert"], examples_query_encoder, **parts), tmp_path / "whole")

    with monkeypatch.context() as patch:
        patch.setattr("vocable.training.run._save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(recipe_query_encoder(backbones["bert"], examples_query_encoder, **parts), tmp_path / "resumed")
    last = tmp_path / "resumed.partial" / "train" / "checkpoint-2" / COMPLETE
    last.unlink()  # it goes on from the first step
    resumed = train(recipe_query_encoder(backbones["bert"], examples_query_encoder, **parts), tmp_path / "resumed")
    assert float(table(whole).weight.detach().max()) > 1
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    assert [pooling.get_config_dict()["pooling_strategy"] for _, pooling in splade_modules(resumed)] == [
        "mean-before-head"
    ]


@pytest.mark.parametrize(
    "queries",
    [
        {},
        {"weights": "ones", "model": "x"},
        {"weights": "idf"},
        {"weights": "ones", "corpus": "x"},
        {"model": "x", "trainable": True},
        {"weights": "ones", "learning_rate": 0.1},
        {"weights": "ones", "freeze_documents": True},
        {"weights": "mean", "corpus": "x"},
        {"weights": "tf"},
    ],
)
def test_what_does_not_fit_together_is_refused(queries: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="queries"):
        recipe_query_encoder(Path("x"), "y", queries=queries)


def test_encoders_of_different_terms_are_refused(
    backbones: dict[str, Path], examples_query_encoder: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError):
        train(
            recipe_query_encoder(
                backbones["bert"], examples_query_encoder, queries={"model": str(backbones["roberta"])}
            ),
            tmp_path / "model",
        )
