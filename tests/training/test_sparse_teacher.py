"""The sparse teacher: its vectors are what it encodes, kept on disk, and fit the student's."""

import json

import numpy as np
import pytest
from datasets import Dataset

from vocable.encoder import stream
from vocable.encoder.encode import encode
from vocable.encoder.load import load, save_model
from vocable.errors import ModelError, RecipeError
from vocable.training import teachers as module
from vocable.training.recipe import make_recipe
from vocable.training.settings import TeacherSettings
from vocable.training.teachers import load_sparse_teacher, load_teachers
from vocable.training.train import train


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(stream, "PART_SIZE", 8)


@pytest.fixture
def examples(toy_texts):
    texts = sorted(set(toy_texts))[:20]
    return Dataset.from_dict({"query": [text[:20] for text in texts], "positive": texts, "negative_1": texts[::-1]})


def test_the_vectors_of_a_batch_are_those_of_the_teacher(backbones, toy_model, examples, tmp_path):
    name = str(backbones["distilbert"])
    teacher = load_sparse_teacher(name, toy_model, examples, tmp_path)
    rows = np.array([17, 0, 9])
    model = load(name, device="cpu")
    batch = examples[rows]
    expected = [
        encode(model, batch[column], "query" if column == "query" else "document").toarray() for column in batch
    ]
    np.testing.assert_allclose(teacher(rows), np.concatenate(expected), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["document", "query"]


def test_what_a_killed_run_encoded_is_not_made_again(backbones, toy_model, examples, tmp_path, monkeypatch):
    name = str(backbones["bert"])
    whole = load_sparse_teacher(name, toy_model, examples, tmp_path / "whole")(np.arange(20))
    write, calls = stream.write_vectors, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # in the second part of the documents
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(stream, "write_vectors", killed)
    with pytest.raises(KeyboardInterrupt):
        load_sparse_teacher(name, toy_model, examples, tmp_path / "out")
    monkeypatch.setattr(stream, "write_vectors", lambda *arguments: calls.append(arguments) or write(*arguments))
    found = load_sparse_teacher(name, toy_model, examples, tmp_path / "out")(np.arange(20))
    assert len(calls) == 3 + 2  # each text once: a part of queries, three of documents
    np.testing.assert_array_equal(found, whole)
    monkeypatch.setattr(module, "encode_stream", None)  # all is there
    np.testing.assert_array_equal(
        load_sparse_teacher(name, toy_model, examples, tmp_path / "out")(np.arange(20)), whole
    )


def test_vectors_and_scores_are_in_the_number_type_of_the_training(backbones, toy_model, examples, tmp_path):
    save_model(load(str(backbones["bert"]), device="cpu"), tmp_path / "model")
    name, sources, rows = str(tmp_path / "model"), np.zeros(20, np.int64), np.array([17, 0, 9])
    settings = TeacherSettings(models=[name])
    batch, model = examples[rows], load(name, device="cpu")
    queries = encode(model, batch["query"], "query", dtype="float32").toarray()
    documents = encode(model, batch["positive"] + batch["negative_1"], dtype="float32").toarray()
    expected = np.concatenate([queries, documents]), queries @ documents.T

    def taught(dtype):
        vectors = load_sparse_teacher(name, toy_model, examples, tmp_path / f"vectors-{dtype}", dtype)
        scores, _ = load_teachers(examples, sources, settings, tmp_path / f"scores-{dtype}", dtype)
        return vectors(rows), scores(rows)

    for exact, rounded, wanted in zip(taught("float32"), taught("bfloat16"), expected, strict=True):
        np.testing.assert_allclose(exact, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rounded, wanted, rtol=0.1, atol=0.1)
        assert not np.allclose(rounded, wanted, rtol=1e-4, atol=1e-5)


def test_a_teacher_without_an_active_term(backbones, toy_model, examples, tmp_path):
    silent = load(str(backbones["bert"]), device="cpu")
    silent[0].auto_model.get_output_embeddings().bias.data -= 1000
    silent.save_pretrained(str(tmp_path / "silent"))
    teacher = load_sparse_teacher(str(tmp_path / "silent"), toy_model, examples, tmp_path / "out")
    assert not teacher(np.array([1, 2])).any()


def test_another_vocabulary_is_refused(backbones, toy_model, examples, tmp_path):
    with pytest.raises(ModelError, match=r"its \d+ output terms are not those of the model that is trained \(\d+\)"):
        load_sparse_teacher(str(backbones["roberta"]), toy_model, examples, tmp_path)


@pytest.mark.parametrize("power", [0.0, 0.75])
def test_its_scores_are_those_of_a_search_of_each_source(backbones, examples, tmp_path, power):
    model = load(str(backbones["distilbert"]), device="cpu")
    model[0].auto_model.config.query_idf = power
    save_model(model, tmp_path / "model")
    sources = np.repeat([0, 1], 10)
    settings = TeacherSettings(models=[str(tmp_path / "model")])
    teacher, embeddings = load_teachers(examples, sources, settings, tmp_path)
    assert embeddings == []
    for rows in (np.array([3, 9, 0]), np.array([12, 19])):
        collection = examples.select(np.flatnonzero(sources == sources[rows[0]]))
        texts = sorted({*collection["positive"], *collection["negative_1"]})
        having = (encode(model, texts).toarray() > 0).sum(axis=0)
        factors = np.log(1 + (len(texts) - having + 0.5) / (having + 0.5)) ** power
        batch = examples[rows]
        documents = encode(model, batch["positive"] + batch["negative_1"]).toarray()
        expected = encode(model, batch["query"], "query").toarray() * factors @ documents.T
        np.testing.assert_allclose(teacher(rows), expected, rtol=1e-4)


def test_topics_need_a_dense_teacher(toy_model, examples, tmp_path):
    save_model(toy_model, tmp_path / "model")
    pairs = [{"query": row["query"], "positive": row["positive"]} for row in examples]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    model = str(tmp_path / "model")
    training = {"steps": 1, "batch_size": 4, "teacher": {"models": [model]}, "losses": [{"name": "kl"}]}
    data = {"examples": [str(tmp_path / "pairs.jsonl")], "topical": True}
    with pytest.raises(RecipeError, match=r"data\.topical: none of training\.teacher\.models is dense"):
        train(make_recipe({"model": model, "data": data, "training": training}), tmp_path / "out")
