from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from vocable.encoding.pruning import prune
from vocable.encoding.vectors import VectorsMeta, read_vectors, selected, write_vectors
from vocable.errors import ArgumentError, VectorsError

# Few distinct weights, so that ties are common.
dense_matrices = arrays(
    np.float32, st.tuples(st.integers(0, 5), st.integers(1, 8)), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
)
MATRIX = csr_array(np.array([[4, 1, 3, 2], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=np.float32))
META = VectorsMeta(vocabulary="abc", model="toy", pooling="max", role="document", max_length=9, size=4)


def brute_force(dense: np.ndarray, max_terms: int | None, min_weight: float, mass: float | None) -> np.ndarray:
    expected = np.zeros_like(dense)
    for row, weights in enumerate(dense):
        order = sorted(np.flatnonzero(weights), key=lambda term: (-weights[term], term))
        enough = len(order)
        if mass is not None:
            total = float(weights.sum())
            enough = next(n for n in range(len(order) + 1) if sum(map(float, weights[order[:n]])) >= mass * total)
        for term in order[:max_terms][:enough]:
            expected[row, term] = weights[term] if weights[term] >= min_weight else 0
    return expected


@given(
    dense_matrices,
    st.none() | st.integers(1, 9),
    st.sampled_from([0.0, 0.5, 0.6]),
    st.none() | st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.875, 1.0]),
)
def test_pruned_vectors_are_those_of_brute_force(
    dense: np.ndarray, max_terms: int | None, min_weight: float, mass: float | None
) -> None:
    expected = brute_force(dense, max_terms, min_weight, mass)
    result = prune(csr_array(dense), max_terms, min_weight, mass)
    np.testing.assert_array_equal(result.toarray(), expected)
    assert result.nnz == np.count_nonzero(expected)
    assert result.has_canonical_format


def test_weights_of_any_size_are_ordered() -> None:
    weights = np.random.default_rng(0).lognormal(0, 8, (20, 50)).astype(np.float32)
    result = prune(csr_array(weights), max_terms=7)
    for row in range(20):
        np.testing.assert_array_equal(np.sort(result[[row]].data), np.sort(weights[row])[-7:])


@pytest.mark.parametrize("mass", [0.1, 0.5, 0.9])
def test_the_fewest_terms_with_the_mass_stay_in_every_row_of_many(mass: float) -> None:
    """Rows of very different weight: the sums of one must not blur those of another."""
    rng = np.random.default_rng(1)
    weights = (rng.random((400, 60)) * 10.0 ** rng.integers(-6, 7, (400, 1))).astype(np.float32)
    result = prune(csr_array(weights), mass=mass)
    for row in range(400):
        kept, total = np.sort(result[[row]].data.astype(np.float64)), weights[row].sum(dtype=np.float64)
        np.testing.assert_array_equal(kept, np.sort(weights[row])[-len(kept) :])
        assert kept.sum() >= (mass - 1e-8) * total
        assert kept[1:].sum() < mass * total


def test_rounding_brings_in_no_term_more() -> None:
    ten = csr_array(np.full((3, 10), 0.1, dtype=np.float32))
    for share in range(1, 11):
        assert prune(ten, mass=share / 10).nnz == 3 * share


def test_limits_out_of_their_range_are_refused() -> None:
    with pytest.raises(ArgumentError):
        prune(MATRIX, max_terms=0)
    with pytest.raises(ArgumentError):
        prune(MATRIX, min_weight=-0.1)
    for mass in (0.0, 1.1, float("nan")):
        with pytest.raises(ArgumentError):
            prune(MATRIX, mass=mass)


def test_stored_vectors_are_pruned_shard_by_shard(tmp_path: Path) -> None:
    source, output = tmp_path / "whole", tmp_path / "pruned"
    source.mkdir()
    write_vectors(source / "part-00000.parquet", ["a", "b"], MATRIX[:2], META)
    write_vectors(source / "part-00001.parquet", ["c"], MATRIX[2:], META)
    assert prune(source, output=output, mass=0.5) == (8, 4)
    stored = read_vectors(output)
    assert (list(stored.ids), stored.meta) == (["a", "b", "c"], META)
    assert stored.matrix.toarray().tolist() == [[4, 0, 3, 0], [0] * 4, [1, 1, 0, 0]]
    assert prune(source, output=output, mass=0.5) == (8, 4)
    with pytest.raises(ArgumentError, match=r"\(mass, max_terms\)"):
        prune(source, output=output, max_terms=1)


def test_what_the_limits_leave_can_lose_more(tmp_path: Path) -> None:
    source, output = tmp_path / "whole.parquet", tmp_path / "pruned"
    write_vectors(source, ["a", "b", "c"], MATRIX, META)
    seen: list[str] = []

    class WithoutTheFirst:
        made_from: dict[str, Any] = {"without": 0}  # noqa: RUF012

        def __call__(self, ids: Sequence[str], matrix: csr_array) -> csr_array:
            seen.extend(ids)
            return selected(matrix, matrix.indices != 0)

    for _ in range(2):  # the second time it is there
        assert prune(source, output=output, mass=0.5, then=WithoutTheFirst()) == (8, 2)
    with pytest.raises(ArgumentError, match=r"\(without\)"):
        prune(source, output=output, mass=0.5)
    assert seen == ["a", "b", "c"]
    assert read_vectors(output).matrix.toarray().tolist() == [[0, 0, 3, 0], [0] * 4, [0, 1, 0, 0]]


def test_a_pruning_that_fails_leaves_no_file(tmp_path: Path) -> None:
    source = tmp_path / "whole"
    source.mkdir()
    write_vectors(source / "part-00000.parquet", ["a"], MATRIX[:1], META)
    (source / "part-00001.parquet").write_bytes(b"cut short")
    with pytest.raises(VectorsError, match="part-00001"):
        prune(source, output=tmp_path / "pruned", max_terms=1)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
