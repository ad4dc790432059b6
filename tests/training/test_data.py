"""Training data: labels are rows, scores are required where a loss needs them, IDF is counted once."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.base.sampler import (
    DefaultBatchSampler,
    NoDuplicatesBatchSampler,
    ProportionalBatchSampler,
)
from torch.utils.data import ConcatDataset, SequentialSampler

from vocable.data.cloze import crops
from vocable.encoding.idf import document_frequencies, idf
from vocable.errors import DataError, RecipeError
from vocable.training import term_statistics as term_statistics_module
from vocable.training.data import InOrder, WithoutRepeats, load_examples, load_training_data, topical_order
from vocable.training.prepared import prepare
from vocable.training.recipe import DataSettings
from vocable.training.recipe_files import make_recipe
from vocable.training.term_statistics import term_statistics
from vocable.training.train import train


@pytest.fixture
def places(toy_texts, tmp_path):
    """Two sources of 12 examples with one negative and scores."""
    texts = sorted(set(toy_texts))[:24]
    for number in range(2):
        rows = [
            {"query": f"{i} {texts[i]}", "positive": texts[i], "negatives": [f"{texts[i - 1]} {i}"], "scores": [i, -i]}
            for i in range(12 * number, 12 * number + 12)
        ]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return [str(tmp_path / f"{number}.jsonl") for number in range(2)]


def recipe(places, model="m", **training):
    data = {"examples": places, "negatives": 1}
    return make_recipe({"model": str(model), "data": data, "training": {"steps": 6, "batch_size": 4, **training}})


def test_where_nobody_teaches_there_are_no_labels(toy_model, places, tmp_path):
    data = load_training_data(recipe(places), toy_model, tmp_path)
    assert {tuple(source.column_names) for source in data.examples.values()} == {("query", "positive", "negative_1")}
    assert (data.teacher, data.sparse_teacher) == (None, None)


def test_labels_lead_to_the_scores_of_the_examples(toy_model, places, tmp_path):
    data = load_training_data(recipe(places, losses=[{"name": "margin_mse"}]), toy_model, tmp_path)
    for source in data.examples.values():
        numbers = [int(query.split()[0]) for query in source["query"]]
        found = data.teacher(np.array(source["label"]))
        assert found.tolist() == [[number, -number] for number in numbers]
    rows = np.concatenate([source["label"] for source in data.examples.values()])
    assert rows.tolist() == list(range(24))


def test_examples_without_scores_are_refused_where_they_are_needed(toy_model, places, tmp_path):
    (tmp_path / "bare.jsonl").write_text(
        json.dumps({"query": "q", "positive": "p", "negatives": ["n"]}), encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"bare\.jsonl"):
        load_training_data(
            recipe([*places, str(tmp_path / "bare.jsonl")], losses=[{"name": "kl"}]), toy_model, tmp_path
        )


def test_idf_is_counted_over_the_documents_and_kept(toy_model, places, tmp_path, monkeypatch):
    settings = recipe(places, regularizers={"query": {"name": "idf_flops", "weight": 1}})
    data = load_training_data(settings, toy_model, tmp_path)
    documents = [text for source in data.examples.values() for text in [*source["positive"], *source["negative_1"]]]
    size = toy_model[0].auto_model.config.vocab_size
    expected = idf(*document_frequencies(documents, toy_model.tokenizer, size=size))
    inputs = settings.training.regularizers, toy_model, data.examples, tmp_path
    np.testing.assert_array_equal(term_statistics(*inputs)["query"].values(), expected)
    monkeypatch.setattr(term_statistics_module, "document_frequencies", None)
    np.testing.assert_array_equal(term_statistics(*inputs)["query"].values(), expected)


def test_a_training_takes_all_losses_penalties_and_limits_at_once(backbones, places, tmp_path):
    losses = [{"name": "margin_mse", "weight": 0.1}, {"name": "kl"}, {"name": "alignment"}, {"name": "info_nce"}]
    regularizers = {
        "query": {"name": "l1", "weight": 0.01, "ramp": "constant"},
        "document": {"name": "idf_flops", "weight": 0.01, "ramp": "linear", "threshold": 3},
        "joint": 0.1,
    }
    settings = recipe(
        places,
        backbones["bert"],
        losses=losses,
        sparse_teacher=str(backbones["distilbert"]),
        regularizers=regularizers,
        max_terms={"query": 8, "document": 16},
        micro_batch=2,
        log_every=1,
    )
    train(settings, tmp_path / "model")
    log = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(log) == 6
    for line in log:
        parts = [line[f"{side}_regularizer_loss"] for side in ("query", "document", "joint")]
        assert line["loss"] == pytest.approx(line["base_loss"] + sum(parts), abs=3e-4)
        assert line["base_loss"] == pytest.approx(sum(line[loss["name"]] for loss in losses), abs=1e-3)


HARD = {"file": "ids.jsonl", "corpus": "corpus.tsv", "queries": "queries.tsv"}


@pytest.fixture
def places_examples(tmp_path):
    def write(name, size, negatives=0, scores=False):
        rows = [
            {
                "query": f"{name} {i}",
                "positive": f"answer {i}",
                "negatives": [f"wrong {i} {j}" for j in range(negatives)],
                "scores": [10.0, *(float(j + i) for j in range(negatives))] if scores else [],
            }
            for i in range(size)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return str(path)

    return write


def load(sources, tmp_path, *, draws=120, batch_size=4, seed=0, scored=False, **data):
    settings = DataSettings(examples=sources, **{"held_out": 0} | data)
    options = {"draws": draws, "batch_size": batch_size, "seed": seed, "cache": tmp_path / "cache", "scored": scored}
    return load_examples(sources, settings, **options)[0]


@pytest.mark.parametrize("sampling", ["first", "random"])
def test_examples_are_held_out_of_every_source_and_their_queries_are_not_learned(places_examples, tmp_path, sampling):
    sources = [places_examples("large", 80, 3), places_examples("small", 20, 3)]
    settings = DataSettings(examples=sources, negatives=2, sampling=sampling, held_out=9)
    options = {"draws": 300, "batch_size": 4, "seed": 0}
    drawn, held_out = load_examples(sources, settings, cache=tmp_path / "cache", **options)
    queries = set(held_out["query"])
    assert held_out.column_names == ["query", "positive"]
    assert len(queries) == len(held_out) == 8 + 2  # in proportion, rounded up
    learned = {query for examples in drawn.values() for query in examples["query"]}
    assert not learned & queries
    assert len(learned | queries) == 100
    _, again = load_examples(sources, settings, cache=tmp_path / "cache", **options)
    assert again["query"][:] == held_out["query"][:]


def test_a_query_that_is_there_often_is_held_out_whole_or_not_at_all(tmp_path):
    rows = [{"query": f"asks {i % 15}", "positive": f"answers {i}"} for i in range(60)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    settings = DataSettings(examples=[str(path)])
    options = {"draws": 300, "batch_size": 4, "seed": 0}
    drawn, held_out = load_examples([str(path)], settings, cache=tmp_path / "cache", **options)
    [query] = held_out["query"]  # of four rows; a tenth are six
    assert query not in {one for examples in drawn.values() for one in examples["query"]}


def test_crops_are_drawn_anew_in_each_pass_and_again_the_same(tmp_path):
    path = tmp_path / "texts.jsonl"
    texts = [" ".join(f"w{text}x{place}" for place in range(40)) for text in range(20)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    [drawn] = load([f"crops:{path}"], tmp_path, draws=60).values()
    [again] = load([f"crops:{path}"], tmp_path, draws=60).values()
    assert again[:] == drawn[:]
    spans = dict[str, set[tuple[str, str]]]()
    for turn in range(3):
        rows = drawn[turn * 20 : turn * 20 + 20]
        for pair in zip(rows["query"], rows["positive"], strict=True):
            assert pair == crops(next(text for text in texts if pair[0] in text), turn)
            spans.setdefault(pair[0].partition("x")[0], set()).add(pair)
    assert {name: len(some) for name, some in spans.items()} == {f"w{text}": 3 for text in range(20)}


def test_crops_stand_beside_prepared_examples(places_examples, tmp_path):
    path = tmp_path / "texts.jsonl"
    texts = [" ".join(f"w{text}x{place}" for place in range(40)) for text in range(20)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    prepared = prepare(places_examples("small", 20, 3), tmp_path / "prepared").folder
    cropped, others = load([f"crops:{path}", str(prepared)], tmp_path, draws=80).values()
    assert len(set(zip(cropped["query"], cropped["positive"], strict=True))) == len(cropped) == 40
    assert {query.split()[0] for query in others["query"]} == {"small"}


def test_a_batch_beyond_the_examples_is_refused(places_examples, tmp_path):
    with pytest.raises(RecipeError, match=r"training\.batch_size: .*\b9\b"):
        load([places_examples("few", 8)], tmp_path, batch_size=9)


@pytest.mark.parametrize(("exponent", "shares"), [(1.0, [96, 24]), (0.0, [60, 60]), (0.5, [80, 40])])
def test_sources_are_drawn_by_a_power_of_their_size(places_examples, tmp_path, exponent, shares):
    examples = load([places_examples("large", 80), places_examples("small", 20)], tmp_path, size_exponent=exponent)
    assert [len(source) for source in examples.values()] == shares


def test_a_source_is_repeated_in_whole_passes(places_examples, tmp_path):
    [source] = load([places_examples("few", 8)], tmp_path, draws=20).values()
    queries = source["query"][:]
    assert sorted(queries[:8]) == sorted(queries[8:16]) == sorted(f"few {i}" for i in range(8))
    assert queries[:8] != queries[8:16]


def test_the_seed_decides_the_order(places_examples, tmp_path):
    place = places_examples("some", 30)
    orders = [next(iter(load([place], tmp_path, seed=seed).values()))["query"][:] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_negatives_become_columns(places_examples, tmp_path):
    [source] = load([places_examples("hard", 8, negatives=3)], tmp_path, negatives=2, draws=8).values()
    assert source.column_names == ["query", "positive", "negative_1", "negative_2"]
    row = source[0]
    number = row["query"].split()[1]
    assert (row["negative_1"], row["negative_2"]) == (f"wrong {number} 0", f"wrong {number} 1")


def test_too_few_negatives_are_refused(places_examples, tmp_path):
    with pytest.raises(DataError, match=r"has 1 .* 2: 'hard 0'"):
        load([places_examples("hard", 8, negatives=1)], tmp_path, negatives=2)


def test_an_empty_source_is_refused(places_examples, tmp_path):
    with pytest.raises(DataError):
        load([places_examples("none", 0)], tmp_path)


def test_scores_become_labels(places_examples, tmp_path):
    [source] = load(
        [places_examples("scored", 8, negatives=3, scores=True)], tmp_path, negatives=2, draws=8, scored=True
    ).values()
    for row in source:
        number = int(row["query"].split()[1])
        assert row["label"] == [10.0, number, number + 1]
    [source] = load([places_examples("scored", 8, negatives=3, scores=True)], tmp_path, negatives=2, draws=8).values()
    assert "label" not in source.column_names


def test_examples_without_the_scores_that_are_asked_for_are_refused(places_examples, tmp_path):
    place = places_examples("plain", 8, negatives=2)
    with pytest.raises(DataError, match=r"plain\.jsonl: .*training\.tea"):
        load([place], tmp_path, negatives=2, scored=True)
    with pytest.raises(DataError, match=r"plain\.jsonl: .*'plain 0'"):
        load([place], tmp_path, negatives=2, false_negative_margin=1.0)


def test_false_negatives_are_left_out(places_examples, tmp_path):
    place = places_examples(
        "scored", 8, negatives=4, scores=True
    )  # example i has negatives that score i, i + 1, i + 2, i + 3
    data = {"negatives": 2, "false_negative_margin": 4.0, "draws": 8}
    [source] = load([place], tmp_path, scored=True, **data).values()
    assert {int(query.split()[1]) for query in source["query"]} == set(range(6))  # of 6 and 7 too few are left
    assert all(max(row["label"][1:]) <= 6.0 for row in source)
    with pytest.raises(DataError):
        load([place], tmp_path, negatives=4, false_negative_margin=8.0)


def test_random_negatives_change_and_every_query_comes_once_a_pass(places_examples, tmp_path):
    place = places_examples("many", 8, negatives=6)
    [source] = load([place], tmp_path, negatives=2, sampling="random", draws=80).values()
    queries = source["query"][:]
    assert all(len(set(queries[start : start + 8])) == 8 for start in range(0, 80, 8))
    chosen = {(row["negative_1"], row["negative_2"]) for row in source if row["query"] == "many 0"}
    assert len(chosen) > 5
    assert {text for pair in chosen for text in pair} == {f"wrong 0 {j}" for j in range(6)}


def test_a_batch_comes_from_one_source(places_examples, tmp_path):
    """The host trainer's own batches over what `load_examples` gives."""
    examples = load([places_examples("large", 40), places_examples("small", 12)], tmp_path, draws=48)
    samplers = [
        DefaultBatchSampler(SequentialSampler(source), batch_size=4, drop_last=True) for source in examples.values()
    ]
    mixed = ConcatDataset(list(examples.values()))
    batches = list(
        ProportionalBatchSampler(mixed, samplers, generator=torch.Generator(), seed=0),
    )
    names = [{mixed[row]["query"].split()[0] for row in batch} for batch in batches]
    assert sorted(map(sorted, names)) == [["large"]] * 9 + [["small"]] * 3


@pytest.mark.parametrize(
    "data",
    [
        {"sampling": "random"},
        {"false_negative_margin": 1.0},
        {"examples": [{"file": "a"}]},
        {"examples": [HARD | {"system": []}]},
        {"examples": [HARD], "negatives": 2, "false_negative_margin": 1.0},
    ],
)
def test_settings_of_data_that_cannot_be_are_refused(data):
    with pytest.raises(RecipeError):
        make_recipe({"model": "m", "data": {"examples": ["a"]} | data, "training": {"steps": 1}})


@given(st.integers(0, 99), st.integers(1, 90), st.integers(1, 9))
def test_every_example_stands_in_the_order_once(seed, examples, batch_size):
    rng = np.random.default_rng(seed)
    order = topical_order(rng.normal(size=(examples, 3)).astype(np.float16), batch_size, rng)
    assert sorted(order) == list(range(examples))


def test_a_batch_is_of_one_topic():
    rng = np.random.default_rng(0)
    topics = np.repeat(np.arange(8), 12)  # eight far centres, three batches of four each
    vectors = 10 * np.eye(8)[topics] + rng.normal(scale=0.01, size=(96, 8))
    mixed = rng.permutation(96)
    batches = topics[mixed][topical_order(vectors[mixed], 4, rng)].reshape(-1, 4)
    assert (batches == batches[:, :1]).all()
    assert (np.diff(batches[:, 0]) < 0).any()  # batches in no order


def test_batches_are_nearer_than_chance():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(512, 16))
    spread = vectors[topical_order(vectors, 16, rng)].reshape(32, 16, 16).var(axis=1).sum(axis=1).mean()
    assert spread < 0.8 * vectors.var(axis=0).sum()


def test_the_sampler_keeps_the_order():
    assert list(InOrder(range(10), batch_size=4, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def drawn_often(examples: int, negatives: int, rows: int) -> Dataset:
    """Examples with one negative from a few texts, drawn in passes as those of a run."""
    rng = np.random.default_rng(0)
    one = [
        {"query": f"q{i}", "positive": f"p{i}", "negative_1": f"n{rng.integers(negatives)}"} for i in range(examples)
    ]
    order = np.concatenate([rng.permutation(examples) for _ in range(-(-rows // examples))])[:rows]
    return Dataset.from_list([one[i] for i in order])


def sampled(kind: type[NoDuplicatesBatchSampler], data: Dataset, batch_size: int, epoch: int = 0) -> list[list[int]]:
    sampler = kind(data, batch_size, True, generator=torch.Generator(), seed=3)
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize(("examples", "negatives", "rows", "batch_size"), [(700, 60, 1440, 24), (100, 90, 400, 4)])
def test_a_run_has_its_batches_though_the_last_examples_share_texts(
    examples: int, negatives: int, rows: int, batch_size: int
) -> None:
    data = drawn_often(examples, negatives, rows)
    batches = sampled(WithoutRepeats, data, batch_size)
    assert len(batches) == rows // batch_size
    columns = [data[name] for name in data.column_names]
    for batch in batches:
        assert len({column[i] for column in columns for i in batch}) == len(columns) * batch_size
    assert batches == sampled(WithoutRepeats, data, batch_size)
    assert batches != sampled(WithoutRepeats, data, batch_size, epoch=1)
    stock = sampled(NoDuplicatesBatchSampler, data, batch_size)
    assert batches[: len(stock)] == stock


def test_few_different_texts_are_shuffled_again_and_again_but_not_without_end() -> None:
    """Of 60 examples 54 have one query: a pass fills 6 batches of 2 at most, of the 30 that are asked for."""
    rows = [{"query": "one" if i < 54 else f"q{i}", "positive": f"p{i}"} for i in range(60)]
    data = Dataset.from_list(rows)
    stock, ours = (sampled(kind, data, 2) for kind in (NoDuplicatesBatchSampler, WithoutRepeats))
    assert len(stock) < 20
    assert len(ours) == 30
    assert ours[: len(stock)] == stock
    assert len({tuple(batch) for batch in ours}) > 25
    assert sampled(WithoutRepeats, Dataset.from_list(rows[:54]), 2) == []
