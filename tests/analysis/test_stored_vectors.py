from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array, random_array

from vocable.analysis.stored_vectors import analyze_postings, analyze_weights, gini, stored_parts
from vocable.encoding.load import load
from vocable.encoding.pruning import prune
from vocable.encoding.terms import terms
from vocable.encoding.vectors import VectorsMeta, vocabulary_fingerprint, write_vectors
from vocable.errors import ArgumentError, ModelError, VectorsError
from vocable.indexes.exact_index import ExactIndex

META = VectorsMeta(vocabulary="abc", model="toy", pooling="max", role="document", max_length=9, size=6)
dense_matrices = arrays(
    np.float32, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0])
)


def mean_difference(lengths: np.ndarray) -> float:
    """The Gini coefficient by its definition, over all pairs."""
    if not lengths.sum():
        return 0.0
    return float(np.abs(lengths[:, None] - lengths[None]).mean() / (2 * lengths.mean()))


@given(dense_matrices, st.integers(0, 9), st.none() | st.integers(1, 4))
def test_figures_are_those_of_the_whole_matrix(dense: np.ndarray, cut: int, k: int | None) -> None:
    whole, cut = csr_array(dense), min(cut, len(dense))
    [found] = analyze_postings([whole[:cut], whole[cut:]], max_terms=[k], longest=2)
    active = prune(whole, k).toarray() > 0
    lists, sizes = active.sum(axis=0), active.sum(axis=1)
    for spread, lengths in ((found.all_terms, lists), (found.used_terms, lists[lists > 0])):
        assert spread.terms == len(lengths)
        if len(lengths):
            expected = lengths.mean(), lengths.var(), lengths.std(), mean_difference(lengths)
            assert spread[1:] == pytest.approx(expected, abs=1e-9)
    assert (found.texts, found.postings, found.max_terms) == (len(dense), active.sum(), k)
    assert found.bytes == 6 * active.sum() + 8 * (dense.shape[1] + 1)
    assert (found.l0["mean"], found.l0["std"]) == pytest.approx((sizes.mean(), sizes.std()), abs=1e-9)
    for share in (50, 90, 99, 100):
        assert found.l0[f"p{share}"] == np.percentile(sizes, share, method="inverted_cdf")
    order = sorted(np.flatnonzero(lists), key=lambda term: (-lists[term], term))[:2]
    assert found.longest == tuple((term, lists[term]) for term in order)


@pytest.mark.parametrize("n", [0, 1, 65_536, 65_537, 200_000])
def test_bytes_are_those_of_the_exact_index(n: int) -> None:
    vectors = csr_array((np.ones(n, np.float32), np.arange(n) % 5, np.arange(n + 1)), shape=(n, 5))
    [found] = analyze_postings([vectors])
    assert found.bytes == sum(array.nbytes for array in ExactIndex(vectors).arrays().values())


def test_gini_of_extremes() -> None:
    assert gini(np.array([], dtype=np.int64)) == gini(np.zeros(4, dtype=np.int64)) == 0
    assert gini(np.array([5, 5, 5])) == pytest.approx(0)
    assert gini(np.array([0] * 99 + [7])) == pytest.approx(0.99)


def test_an_index_has_the_figures_of_its_vectors(tmp_path: Path) -> None:
    matrix = csr_array(np.array([[1, 2, 0, 0, 0, 3], [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 4]], dtype=np.float32))
    shards, single = tmp_path / "shards", tmp_path / "one.parquet"
    shards.mkdir()
    write_vectors(shards / "part-00000.parquet", ["b", "a"], matrix[:2], META)
    write_vectors(shards / "part-00001.parquet", ["c"], matrix[2:], META)
    write_vectors(single, ["b", "a", "c"], matrix, META)
    ExactIndex(matrix, ["b", "a", "c"], META).save(tmp_path / "index")
    expected = analyze_postings([matrix], max_terms=[None, 1])
    for place in (shards, single, tmp_path / "index"):
        assert stored_parts(place)[1] == META
        assert list(analyze_postings(place, max_terms=[None, 1])) == list(expected)
    assert expected[0].longest == ((5, 3), (0, 1), (1, 1), (2, 1))
    assert [one.postings for one in expected] == [6, 3]


def test_a_notebook_shows_all_tables_and_what_stands_below() -> None:
    found = analyze_postings(csr_array(np.array([[1, 2], [0, 3]], dtype=np.float32)), max_terms=[None, 1])
    html = found._repr_html_()
    assert html.count("<caption>") == html.count("<table>") == 2
    assert html.count("<tr>") == (1 + 4) + (1 + 2)
    assert html.endswith("<p>longest lists: &lt;1&gt; 2, &lt;0&gt; 1</p>")


def test_missing_and_unfinished_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VectorsError):
        analyze_postings(tmp_path)
    with pytest.raises(VectorsError):
        analyze_postings(tmp_path / "none")
    with pytest.raises(VectorsError):
        analyze_postings([])
    with pytest.raises(ArgumentError):
        analyze_postings([], longest=-1)


def test_several_shards_are_measured_as_one(tmp_path: Path) -> None:
    matrix = csr_array(np.array([[1, 2, 0, 0, 0, 3], [0, 0, 1, 0, 0, 1]], dtype=np.float32))
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_vectors(folder / "part-00000.parquet", [f"d{number}"], matrix[[number]], META)
    assert list(analyze_postings([tmp_path / "0", tmp_path / "1"])) == list(analyze_postings(matrix))


def test_terms_have_the_names_of_the_model_that_is_not_loaded(
    backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = terms(load(backbone, device="cpu"))
    last = len(names) - 1
    columns = np.array([0, 7, last])
    matrix = csr_array((np.ones(3, np.float32), (np.zeros(3, int), columns)), shape=(1, len(names)))
    meta = replace(META, vocabulary=vocabulary_fingerprint(names), model=str(backbone), size=len(names))
    monkeypatch.setattr("vocable.torch_models.sparse_encoder.load_sparse_encoder", refused)
    for made_by, expected in (
        (meta, [names[0], names[7], names[last]]),
        (replace(meta, model="moved/away"), [0, 7, last]),  # there is no such model
    ):
        write_vectors(tmp_path / "one.parquet", ["a"], matrix, made_by)
        [found] = analyze_postings(tmp_path / "one.parquet")
        assert [term for term, _ in found.longest] == expected


def refused(name: str, **options: object) -> None:
    """In place of `load`: of a folder it would load the model."""
    assert not Path(name).exists(), "the model was loaded for its terms' names"
    raise ModelError(f"{name}: nothing there")


TEXTS = csr_array(random_array((90, 25), density=0.3, rng=np.random.default_rng(0), dtype=np.float32))


@pytest.mark.parametrize("cuts", [[], [1, 2, 50], [90]])
def test_parts_are_measured_as_the_whole(cuts: list[int]) -> None:
    edges = [0, *cuts, 90]
    parts = (TEXTS[low:high] for low, high in pairwise(edges))
    found = analyze_weights([*parts], min_count=[1, 25, 1000], max_terms=[None, 3])
    expected = []
    for k in (None, 3):
        dense = prune(TEXTS, k).toarray().astype(np.float64)
        for threshold in (1, 25, 1000):
            spread = [w[w > 0].std() for w in dense.T if (w > 0).sum() >= threshold and (w > 0).any()]
            expected.append((k, threshold, len(spread), pytest.approx(np.mean(spread), abs=1e-7) if spread else None))
    assert [tuple(vars(one).values()) for one in found] == expected


def test_weights_that_cannot_be_measured_are_refused() -> None:
    with pytest.raises(ArgumentError):
        analyze_weights(TEXTS, min_count=[0])
    with pytest.raises(ArgumentError):
        analyze_weights(TEXTS, max_terms=[0])
    with pytest.raises(VectorsError):
        analyze_weights([])
    with pytest.raises(VectorsError):
        analyze_weights([TEXTS, csr_array((1, 3), dtype=np.float32)])
