"""Rows of dense retrievers: the ranking and the measures of all similarities, and the pooling of raw checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from studies import dense
from studies.common import reproduce
from studies.measurements import quality
from studies.runs import Run
from studies.toys import Toys
from studies.vectors import Encoders, Place
from tests.studies.test_plan import study_of
from tests.studies.test_vectors import WORDS, collection


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Toys(tmp_path_factory.mktemp("toys")).model("bert")


def embedded(model: str, texts: list[str], pooling: str) -> np.ndarray:
    """The vectors [n, d] by transformers alone."""
    tokens = AutoTokenizer.from_pretrained(model)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(model)(**tokens).last_hidden_state
    mask = tokens["attention_mask"][:, :, None]
    found = states[:, 0] if pooling == "cls" else (states * mask).sum(dim=1) / mask.sum(dim=1)
    return found.numpy()


@pytest.fixture
def texts() -> dict[str, str]:
    return {f"d{17 * n % 60}": f"{n} days of {WORDS[n % 10]} and {WORDS[n % 7]}" for n in range(60)}


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_raw_checkpoint_is_ranked_by_inner_products_of_its_pooling(
    tmp_path: Path, backbone: str, texts: dict[str, str], pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "BLOCK", 7)
    shared = dict([*texts.items()][10:50]) | {"d0": "another text", "new": "a new text of snow"}
    sources = {"first": texts, "second": shared}
    places = {name: Place(collection(tmp_path / name, some), "first") for name, some in sources.items()}
    model = ("dense-cls:" if pooling == "cls" else "dense:") + backbone
    run = Run("run", tmp_path / "out", model=model)
    encoders = Encoders(run, places)
    for name, some in sources.items():
        on = encoders.open(name)
        ids = [document.id for document in on.dataset.documents]
        assert set(ids) == set(some)
        queries = embedded(backbone, [query.text for query in on.dataset.queries], pooling)
        scores = queries @ embedded(backbone, [some[one] for one in ids], pooling).T
        found = on.rank_densely(20)
        best = -np.sort(-scores, axis=1)[:, :20]
        np.testing.assert_allclose(found.scores, best, rtol=2e-3)  # kept in 16 bits
        np.testing.assert_allclose(np.take_along_axis(scores, found.rows, axis=1), best, rtol=4e-3)
        judged = [ids.index(f"{[*some][number]}") for number in range(3)]  # the document of query number
        ranks = [1 + int((row > row[own]).sum()) for row, own in zip(scores, judged, strict=True)]
        values = quality("RR@10", name).measure(run, on, ["RR@10", "L0_d"])
        assert values["RR@10"] == pytest.approx(np.mean([1 / rank if rank <= 10 else 0 for rank in ranks]))
        assert np.isnan(values["L0_d"])
    assert [len(names) for names, _ in encoders.open("second").dense_documents] == [2, 60]  # encoded once
    encoders.close()
    assert not encoders.vectors.exists()


def test_a_model_of_sentence_transformers_keeps_its_own_similarity_and_prompts(tmp_path: Path, backbone: str) -> None:
    SentenceTransformer(backbone, prompts={"query": "the "}, similarity_fn_name="cosine").save(str(tmp_path / "saved"))
    model = dense.load_retriever(f"dense:{tmp_path / 'saved'}")
    assert model.similarity_fn_name == "cosine"
    run = Run("run", tmp_path / "out", model=f"dense:{tmp_path / 'saved'}")
    found = Encoders(run, {}).embed("one", "query", ["snow", "rain and hail"])
    np.testing.assert_allclose(found, model.encode_query(["snow", "rain and hail"]), atol=2e-3)


def test_documents_before_a_part_and_behind_it_are_ranked_as_one(backbone: str) -> None:
    class Dot:
        device = torch.device("cpu")

        def similarity(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
            return one @ two.T

    rng = np.random.default_rng(0)
    queries, documents = rng.normal(size=(4, 8)), rng.normal(size=(50, 8)).astype(np.float32)
    order = rng.permutation(50)
    model: Any = Dot()
    parts = [(order[:20], documents[order[:20]]), (order[20:], documents[order[20:]])]
    found = dense.rank(model, queries, parts, 10, [str(row) for row in range(50)])
    expected = np.argsort(-(queries.astype(np.float32) @ documents.T), axis=1)[:, :10]
    assert found.rows.tolist() == expected.tolist()
    assert found.hits(0)[0][0] == str(expected[0, 0])


@pytest.mark.slow
def test_dense_rows_stand_beside_the_sparse_ones(tmp_path: Path) -> None:
    study = study_of("vocabulary_transfer")
    exhibit = replace(study.exhibits["figure-1"], rows={})
    study = replace(study, exhibits={"figure-1": exhibit}, groups={"BEIR": "NFC"})
    found = reproduce(study, tmp_path / "out", toy=True)
    assert not found.failed
    cells = found.cells["figure-1"]
    assert [*cells] == ["TAS-B", "CoCondenser", "Contriever", "gte-modernbert"]
    assert all(0 <= cell.ours[0] <= 100 for row in cells.values() for cell in row.values())
    assert cells["CoCondenser"]["MSM MRR@10"].published == 38.2


def test_a_saved_dense_model_is_ranked_by_inner_products_where_the_row_says_so(tmp_path: Path, backbone: str) -> None:
    SentenceTransformer(backbone).save(str(tmp_path / "dense"))
    similarity = {
        kind: dense.load_retriever(f"{kind}{tmp_path / 'dense'}").similarity_fn_name for kind in dense.POOLINGS
    }
    assert similarity == {"dense:": "cosine", "dense-cls:": "cosine", "dense-dot:": "dot"}
