"""Teachers: their scores, several as one, what a killed run leaves, and what a recipe makes of them."""

import json

import numpy as np
import pytest
from datasets import Dataset
from numpy.lib.format import open_memmap
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from vocable.encoding import stream
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.errors import ModelError, RecipeError
from vocable.indexes.bm25 import BM25Index
from vocable.torch_models.sparse_encoder import save_model
from vocable.training import teachers as module
from vocable.training.recipe import TeacherSettings
from vocable.training.recipe_files import make_recipe
from vocable.training.teachers import lexical_teacher, load_sparse_teacher, load_teachers, own_scores
from vocable.training.train import train

ONE = np.zeros(20, dtype=np.int64)  # all examples are of one source


@pytest.fixture(scope="session")
def dense(backbones, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense")
    transformer = Transformer(str(backbones["bert"]))
    SentenceTransformer(modules=[transformer, Pooling(32, "mean")], device="cpu").save_pretrained(str(folder))
    return str(folder)


@pytest.fixture
def examples(toy_texts):
    texts = sorted(set(toy_texts))[:20]
    rows = {"query": [text[:20] for text in texts], "positive": texts, "negative_1": texts[1:] + texts[:1]}
    return Dataset.from_dict(rows)


def test_scores_are_cosines_of_every_query_with_every_document(dense, examples, tmp_path):
    settings, (exact_folder, rounded_folder) = TeacherSettings(models=[dense]), (tmp_path / "exact", tmp_path / "half")
    exact_folder.mkdir()
    rounded_folder.mkdir()
    exact, _ = load_teachers(examples, ONE, settings, exact_folder, "float32")
    rounded, _ = load_teachers(examples, ONE, settings, rounded_folder, "bfloat16")
    rows = np.array([14, 3, 15])
    batch = examples[rows]
    model = SentenceTransformer(dense, device="cpu")
    documents = model.encode(batch["positive"] + batch["negative_1"], normalize_embeddings=True)
    expected = model.encode(batch["query"], normalize_embeddings=True) @ documents.T
    np.testing.assert_allclose(exact(rows), expected, atol=2e-3)  # kept as float16
    np.testing.assert_allclose(rounded(rows), expected, atol=2e-2)
    assert (rounded(rows) != exact(rows)).any()


def test_what_a_killed_run_embedded_is_not_made_again(dense, examples, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EMBEDDED_TOGETHER", 4)
    settings = TeacherSettings(models=[dense])
    [whole] = load_teachers(examples, ONE, settings, tmp_path)[1]
    shape = whole.vectors.shape
    assert shape == (len({*examples["query"], *examples["positive"]}), 32)  # each distinct text once
    unfinished = open_memmap(tmp_path / "teacher-0-texts.partial", mode="w+", dtype=np.float16, shape=shape)
    unfinished[:10] = 0.5  # two whole chunks, and a part of the third
    unfinished.flush()
    (tmp_path / "teacher-0-texts.npy").unlink()
    [again] = load_teachers(examples, ONE, settings, tmp_path)[1]
    assert (again.vectors[:8] == 0.5).all()
    np.testing.assert_array_equal(again.vectors[8:], whole.vectors[8:])


def test_the_lexical_teacher_scores_as_bm25_does(examples):
    documents = examples["positive"][:] + examples["negative_1"][:]
    index = BM25Index(documents)
    rows = np.array([13, 2, 15])
    found = lexical_teacher(examples)(rows)
    hits = index.search([examples["query"][row] for row in rows.tolist()], k=len(documents))
    expected = np.zeros((len(rows), len(documents)))
    for query in range(len(rows)):
        known = hits.rows[query] >= 0
        expected[query, hits.rows[query][known]] = hits.scores[query][known]
    np.testing.assert_allclose(found, expected[:, np.concatenate([rows, rows + len(examples)])], rtol=1e-5)


def test_several_teachers_are_standardized_before_they_are_averaged(dense, examples, tmp_path, backbones):
    other = str(tmp_path / "other")
    modules = [Transformer(str(backbones["distilbert"])), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(other)
    together, embeddings = load_teachers(examples, ONE, TeacherSettings(models=[dense, other], lexical=True), tmp_path)
    rows = np.arange(2, 8)
    batches = [each.vectors[each.rows[rows]].astype(np.float32) for each in embeddings]  # [6, 3, 32]
    cosines = [np.concatenate([batch[:, 0] @ batch[:, column].T for column in (1, 2)], axis=1) for batch in batches]
    scores = np.stack([*cosines, lexical_teacher(examples)(rows).numpy()])
    z = (scores - scores.mean(axis=2, keepdims=True)) / scores.std(axis=2, keepdims=True)
    np.testing.assert_allclose(together(rows), z.mean(axis=0), atol=1e-4)
    settings = TeacherSettings(models=[dense, other], lexical=True, weights=[2, 1, 3])
    weighted, _ = load_teachers(examples, ONE, settings, tmp_path)
    np.testing.assert_allclose(weighted(rows), (2 * z[0] + z[1] + 3 * z[2]) / 6, atol=1e-4)


def test_bm25_alone_can_teach(examples, tmp_path):
    teacher, dense = load_teachers(examples, ONE, TeacherSettings(lexical=True), tmp_path)
    rows = np.array([4, 9])
    assert dense == []
    np.testing.assert_array_equal(teacher(rows), lexical_teacher(examples)(rows))


def test_examples_may_carry_their_scores():
    examples = Dataset.from_dict({"query": ["a", "b", "c"], "label": [[1.0, 0.5], [2.0, 0.25], [4.0, -1.0]]})
    assert own_scores(examples)(np.array([2, 0])).tolist() == [[4.0, -1.0], [1.0, 0.5]]


@pytest.mark.parametrize("topical", [False, True])
def test_a_recipe_with_a_teacher_draws_the_student_to_it(dense, backbones, toy_texts, tmp_path, topical):
    texts = sorted(set(toy_texts))[:48]
    rows = [json.dumps({"query": text, "positive": f"chapter {i} {text}"}) for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    values = {
        "model": str(backbones["bert"]),
        "data": {"examples": [str(tmp_path / "pairs.jsonl")], "topical": topical, "held_out": 0},
        "training": {
            "steps": 30,
            "batch_size": 8,
            "log_every": 1,
            "learning_rate": 1e-3,
            "teacher": {"models": [dense]},
            "losses": [{"name": "kl", "teacher_temperature": 0.02}],
        },
    }
    train(make_recipe(values), tmp_path / "model")
    log = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["base_loss"] for line in log if "base_loss" in line]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:2])


def test_topics_without_a_teacher_are_refused():
    training = {"steps": 1, "teacher": {"lexical": True}, "losses": [{"name": "kl"}]}
    values = {"model": "m", "data": {"examples": ["a"], "topical": True}, "training": training}
    with pytest.raises(RecipeError, match=r"data\.topical .*training\.teacher\.models"):
        make_recipe(values)


def test_weights_are_one_for_each_teacher():
    teacher = {"models": ["m"], "lexical": True, "weights": [2]}
    values = {"model": "m", "data": {"examples": ["a"]}, "training": {"steps": 1, "teacher": teacher}}
    with pytest.raises(RecipeError, match=r"training\.teacher: weights .*\b2\b.* not 1"):
        make_recipe(values)


def test_a_missing_teacher_is_named(examples, tmp_path):
    with pytest.raises(ModelError):
        load_teachers(examples, ONE, TeacherSettings(models=[str(tmp_path / "none")]), tmp_path)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(stream, "PART_SIZE", 8)


@pytest.fixture
def examples_sparse_teacher(toy_texts):
    texts = sorted(set(toy_texts))[:20]
    return Dataset.from_dict({"query": [text[:20] for text in texts], "positive": texts, "negative_1": texts[::-1]})


def test_the_vectors_of_a_batch_are_those_of_the_teacher(backbones, toy_model, examples_sparse_teacher, tmp_path):
    name = str(backbones["distilbert"])
    teacher = load_sparse_teacher(name, toy_model, examples_sparse_teacher, tmp_path)
    rows = np.array([17, 0, 9])
    model = load(name, device="cpu")
    batch = examples_sparse_teacher[rows]
    expected = [
        encode(model, batch[column], "query" if column == "query" else "document").toarray() for column in batch
    ]
    np.testing.assert_allclose(teacher(rows), np.concatenate(expected), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["document", "query"]


def test_what_a_killed_run_encoded_is_not_made_again(
    backbones, toy_model, examples_sparse_teacher, tmp_path, monkeypatch
):
    name = str(backbones["bert"])
    whole = load_sparse_teacher(name, toy_model, examples_sparse_teacher, tmp_path / "whole")(np.arange(20))
    write, calls = stream.write_vectors, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 3:  # in the second part of the documents
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(stream, "write_vectors", killed)
    with pytest.raises(KeyboardInterrupt):
        load_sparse_teacher(name, toy_model, examples_sparse_teacher, tmp_path / "out")
    monkeypatch.setattr(stream, "write_vectors", lambda *arguments: calls.append(arguments) or write(*arguments))
    found = load_sparse_teacher(name, toy_model, examples_sparse_teacher, tmp_path / "out")(np.arange(20))
    assert len(calls) == 3 + 2  # each text once: a part of queries, three of documents
    np.testing.assert_array_equal(found, whole)
    monkeypatch.setattr(module, "encode_stream", None)  # all is there
    np.testing.assert_array_equal(
        load_sparse_teacher(name, toy_model, examples_sparse_teacher, tmp_path / "out")(np.arange(20)), whole
    )


def test_vectors_and_scores_are_in_the_number_type_of_the_training(
    backbones, toy_model, examples_sparse_teacher, tmp_path
):
    save_model(load(str(backbones["bert"]), device="cpu"), tmp_path / "model")
    name, sources, rows = str(tmp_path / "model"), np.zeros(20, np.int64), np.array([17, 0, 9])
    settings = TeacherSettings(models=[name])
    batch, model = examples_sparse_teacher[rows], load(name, device="cpu")
    queries = encode(model, batch["query"], "query", dtype="float32").toarray()
    documents = encode(model, batch["positive"] + batch["negative_1"], dtype="float32").toarray()
    expected = np.concatenate([queries, documents]), queries @ documents.T

    def taught(dtype):
        vectors = load_sparse_teacher(name, toy_model, examples_sparse_teacher, tmp_path / f"vectors-{dtype}", dtype)
        scores, _ = load_teachers(examples_sparse_teacher, sources, settings, tmp_path / f"scores-{dtype}", dtype)
        return vectors(rows), scores(rows)

    for exact, rounded, wanted in zip(taught("float32"), taught("bfloat16"), expected, strict=True):
        np.testing.assert_allclose(exact, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rounded, wanted, rtol=0.1, atol=0.1)
        assert not np.allclose(rounded, wanted, rtol=1e-4, atol=1e-5)


def test_a_teacher_without_an_active_term_gives_scores_of_zero(backbones, toy_model, examples_sparse_teacher, tmp_path):
    silent = load(str(backbones["bert"]), device="cpu")
    silent[0].auto_model.get_output_embeddings().bias.data -= 1000
    silent.save_pretrained(str(tmp_path / "silent"))
    teacher = load_sparse_teacher(str(tmp_path / "silent"), toy_model, examples_sparse_teacher, tmp_path / "out")
    assert not teacher(np.array([1, 2])).any()


def test_another_vocabulary_is_refused(backbones, toy_model, examples_sparse_teacher, tmp_path):
    with pytest.raises(ModelError):
        load_sparse_teacher(str(backbones["roberta"]), toy_model, examples_sparse_teacher, tmp_path)


@pytest.mark.parametrize("power", [0.0, 0.75])
def test_its_scores_are_those_of_a_search_of_each_source(backbones, examples_sparse_teacher, tmp_path, power):
    model = load(str(backbones["distilbert"]), device="cpu")
    model[0].auto_model.config.query_idf = power
    save_model(model, tmp_path / "model")
    sources = np.repeat([0, 1], 10)
    settings = TeacherSettings(models=[str(tmp_path / "model")])
    teacher, embeddings = load_teachers(examples_sparse_teacher, sources, settings, tmp_path)
    assert embeddings == []
    for rows in (np.array([3, 9, 0]), np.array([12, 19])):
        collection = examples_sparse_teacher.select(np.flatnonzero(sources == sources[rows[0]]))
        texts = sorted({*collection["positive"], *collection["negative_1"]})
        having = (encode(model, texts).toarray() > 0).sum(axis=0)
        factors = np.log(1 + (len(texts) - having + 0.5) / (having + 0.5)) ** power
        batch = examples_sparse_teacher[rows]
        documents = encode(model, batch["positive"] + batch["negative_1"]).toarray()
        expected = encode(model, batch["query"], "query").toarray() * factors @ documents.T
        np.testing.assert_allclose(teacher(rows), expected, rtol=1e-4)


def test_topics_need_a_dense_teacher(toy_model, examples_sparse_teacher, tmp_path):
    save_model(toy_model, tmp_path / "model")
    pairs = [{"query": row["query"], "positive": row["positive"]} for row in examples_sparse_teacher]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    model = str(tmp_path / "model")
    training = {"steps": 1, "batch_size": 4, "teacher": {"models": [model]}, "losses": [{"name": "kl"}]}
    data = {"examples": [str(tmp_path / "pairs.jsonl")], "topical": True}
    with pytest.raises(RecipeError, match=r"data\.topical .*training\.teacher\.models"):
        train(make_recipe({"model": model, "data": data, "training": training}), tmp_path / "out")
