"""The dense teacher: its scores, what it adds to the loss, and what a killed run leaves."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict, concatenate_datasets
from numpy.lib.format import open_memmap
from scipy.special import log_softmax
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss

from vocable.errors import ModelError, RecipeError
from vocable.search.bm25 import BM25Index
from vocable.training import teacher as module
from vocable.training.recipe import Distillation, make_recipe
from vocable.training.teacher import DenseTeacher, DistilledRanking, LexicalTeacher, teach
from vocable.training.train import train


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
    source = Dataset.from_dict(rows)
    return DatasetDict({"first": source.select(range(12)), "second": source.select(range(12, 20))})


def test_scores_are_cosines_of_every_query_with_every_document(dense, examples, tmp_path):
    labelled, _, teacher = teach(examples, Distillation(teacher=dense), tmp_path)
    assert [source["label"][:] for source in labelled.values()] == [list(range(12)), list(range(12, 20))]
    batch = labelled["second"][2:5]
    model = SentenceTransformer(dense, device="cpu")
    documents = model.encode(batch["positive"] + batch["negative_1"], normalize_embeddings=True)
    expected = model.encode(batch["query"], normalize_embeddings=True) @ documents.T
    np.testing.assert_allclose(teacher.scores(np.array(batch["label"])), expected, atol=2e-3)  # kept as float16


def test_what_a_killed_run_embedded_is_not_made_again(dense, examples, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    whole = teach(examples, Distillation(teacher=dense), tmp_path)[1].embeddings
    unfinished = open_memmap(tmp_path / "teacher.partial", mode="w+", dtype=np.float16, shape=whole.shape)
    unfinished[:10] = 0.5  # two whole chunks, and a part of the third
    unfinished.flush()
    (tmp_path / "teacher.npy").unlink()
    again = teach(examples, Distillation(teacher=dense), tmp_path)[1].embeddings
    assert (again[:8] == 0.5).all()
    np.testing.assert_array_equal(again[8:], whole[8:])


def test_the_lexical_teacher_scores_as_bm25_does(dense, examples, tmp_path):
    labelled, _, _ = teach(examples, Distillation(teacher=dense), tmp_path)
    together = concatenate_datasets(list(examples.values()))
    documents = together["positive"][:] + together["negative_1"][:]
    index = BM25Index(documents)
    rows = np.array(labelled["second"][1:4]["label"])
    found = LexicalTeacher(together).scores(rows)
    hits = index.search([together["query"][row] for row in rows], k=len(documents))
    expected = np.zeros((len(rows), len(documents)))
    for query in range(len(rows)):
        known = hits.rows[query] >= 0
        expected[query, hits.rows[query][known]] = hits.scores[query][known]
    np.testing.assert_allclose(found, expected[:, np.concatenate([rows, rows + len(together)])], rtol=1e-5)


def test_both_teachers_are_standardized_before_they_are_averaged(dense, examples, tmp_path):
    labelled, alone, both = teach(examples, Distillation(teacher=dense, lexical=True), tmp_path)
    rows = np.array(labelled["first"][2:8]["label"])
    lexical = LexicalTeacher(concatenate_datasets(list(examples.values())))
    scores = np.stack([alone.scores(rows).numpy(), lexical.scores(rows).numpy()])
    z = (scores - scores.mean(axis=2, keepdims=True)) / scores.std(axis=2, keepdims=True)
    np.testing.assert_allclose(both.scores(rows), z.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("info_nce_weight", [0.0, 0.3])
def test_the_loss_is_the_divergence_and_its_share_of_info_nce(toy_model, info_nce_weight):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(10, 3, 6)).astype(np.float16)
    queries, positives, negatives = rng.random((3, 4, 7)).astype(np.float32)
    rows = np.array([7, 0, 3, 5])
    settings = Distillation(teacher="-", temperature=0.5, weight=2.0, info_nce_weight=info_nce_weight)
    loss = DistilledRanking(
        SparseMultipleNegativesRankingLoss(toy_model, scale=1 / 0.8), DenseTeacher(dense), settings, temperature=0.8
    )
    vectors = [torch.from_numpy(part) for part in (queries, positives, negatives)]
    found = float(loss.compute_loss_from_embeddings(vectors, torch.from_numpy(rows)))
    taught = dense[rows].astype(np.float64)
    teacher = log_softmax(taught[:, 0] @ np.concatenate([taught[:, 1], taught[:, 2]]).T / 0.5, axis=1)
    student = log_softmax(queries @ np.concatenate([positives, negatives]).T / 0.8, axis=1)
    divergence = (np.exp(teacher) * (teacher - student)).sum(axis=1).mean()
    assert found == pytest.approx(2 * divergence - info_nce_weight * student.diagonal().mean(), rel=1e-4)


@pytest.mark.parametrize("topical", [False, True])
def test_a_recipe_with_a_teacher_draws_the_student_to_it(dense, backbones, toy_texts, tmp_path, topical):
    texts = sorted(set(toy_texts))[:48]
    rows = [json.dumps({"query": text, "positive": f"chapter {i} {text}"}) for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    values = {
        "model": str(backbones["bert"]),
        "data": {"examples": [str(tmp_path / "pairs.jsonl")], "topical": topical},
        "training": {
            "steps": 30,
            "batch_size": 8,
            "log_every": 1,
            "learning_rate": 1e-3,
            "distillation": {"teacher": dense, "temperature": 0.02},
        },
    }
    train(make_recipe(values), tmp_path / "model")
    log = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["base_loss"] for line in log if "base_loss" in line]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:2])


def test_topics_without_a_teacher_are_refused():
    values = {"model": "m", "data": {"examples": ["a"], "topical": True}, "training": {"steps": 1}}
    with pytest.raises(RecipeError, match=r"data\.topical needs training\.distillation"):
        make_recipe(values)


def test_a_teacher_that_is_not_there(examples, tmp_path):
    with pytest.raises(ModelError, match="none: no such model folder"):
        teach(examples, Distillation(teacher=str(tmp_path / "none")), tmp_path)
