"""Exact search by shards: brute force, and one index over the same documents, to the last bit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import vocable as vo
from tests.indexes.test_exact_index import assert_same, brute_force, random_vectors, searches
from vocable.core.arrays import Strings
from vocable.core.storage import write_record
from vocable.encoding.vectors import SHARDS, StoredVectors, VectorsMeta, write_vectors
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.exact_shards import Exact, ExactShards, load_exact, save_exact

Search = tuple[np.ndarray, np.ndarray, int, list[str] | None, float]


def parts_of(documents: np.ndarray, ids: Sequence[str], rows: int) -> list[StoredVectors]:
    """Return documents in parts of so many rows."""
    meta = VectorsMeta("v", "model", "max", "document", 8, documents.shape[1])
    starts = range(0, max(1, len(documents)), rows)
    return [StoredVectors(Strings(ids[i : i + rows]), csr_array(documents[i : i + rows]), meta) for i in starts]


def saved(folder: Path, documents: np.ndarray, ids: Sequence[str], rows: int, postings: int) -> Exact:
    save_exact(parts_of(documents, ids, rows), folder / "index", postings=postings)
    return load_exact(folder / "index")


@given(searches(), st.integers(1, 5), st.integers(1, 20), st.data())
def test_shards_answer_as_brute_force_and_as_one_index(
    search: Search, rows: int, postings: int, data: st.DataObject
) -> None:
    queries, documents, k, ids, share = search
    ids = ids or [f"d{row}" for row in range(len(documents))]
    whole = ExactIndex(csr_array(documents), ids)
    with TemporaryDirectory() as folder:
        index = saved(Path(folder), documents, ids, rows, postings)
        assert not isinstance(index, ExactShards) or np.count_nonzero(documents) > postings
        assert [*(index.ids or ())] == ids
        given_queries = csr_array(queries)
        assert_same(index.search(given_queries, k, minimum_match=share), brute_force(queries, documents, k, ids, share))
        in_one, in_shards = (each.search(given_queries, k, threads=1) for each in (whole, index))
        assert_same(in_shards, (in_one.rows, in_one.scores))
        matched = [each.matched(given_queries, minimum_match=share) for each in (index, whole)]
        np.testing.assert_array_equal(*matched)
        np.testing.assert_array_equal(index.document_frequency, whole.document_frequency)
        wanted = data.draw(st.lists(st.integers(0, max(0, len(ids) - 1)), max_size=8)) if ids else []
        np.testing.assert_array_equal(index.get(wanted).toarray(), documents[wanted])
        np.testing.assert_array_equal(index.get().toarray(), documents)


def test_no_shard_has_more_postings(tmp_path: Path) -> None:
    documents, queries = random_vectors(3000, 50, 0.2, seed=3), random_vectors(5, 50, 0.5, seed=4)
    ids = [f"d{17 * row % 3000}" for row in range(3000)]
    index = saved(tmp_path, documents, ids, 400, 5000)
    assert isinstance(index, ExactShards)
    assert max(int(shard.document_frequency.sum()) for shard in index.shards) <= 5000
    assert len(index.shards) == pytest.approx(np.count_nonzero(documents) / 5000, abs=1)
    expected = ExactIndex(csr_array(documents), ids).search(csr_array(queries), 700)
    assert_same(index.search(csr_array(queries), 700), (expected.rows, expected.scores))
    assert_same(index.search(csr_array(queries[:1]), 700), (expected.rows[:1], expected.scores[:1]))


def test_a_document_in_two_shards_is_refused(tmp_path: Path) -> None:
    documents = random_vectors(6, 5, 0.8, seed=5)
    with pytest.raises(VectorsError):
        saved(tmp_path, documents, ["d1", "d2", "d3", "d4", "d5", "d1"], 2, 4)


def test_shards_that_are_missing_or_others_are_refused(tmp_path: Path) -> None:
    documents = random_vectors(6, 5, 0.8, seed=6)
    saved(tmp_path, documents, [f"d{row}" for row in range(6)], 2, 4)
    folder = tmp_path / "index"
    (folder / "shard-00002").unlink()
    with pytest.raises(VectorsError, match="shard-00002"):
        load_exact(folder)
    write_record(folder / SHARDS, [5])
    with pytest.raises(VectorsError, match=SHARDS):
        load_exact(folder)
    (folder / SHARDS).unlink()
    with pytest.raises(VectorsError):
        load_exact(folder)
    other = ExactIndex(csr_array(documents), [f"e{row}" for row in range(6)])
    with pytest.raises(VectorsError):
        ExactShards([other, ExactIndex(csr_array(documents[:, :3]), [f"f{row}" for row in range(6)])])
    with pytest.raises(VectorsError):
        ExactShards([ExactIndex(csr_array(documents))])


def test_ties_are_broken_by_id_over_the_shards(tmp_path: Path) -> None:
    ids = [f"d{17 * row % 90:02}" for row in range(90)]
    saved(tmp_path, np.ones((90, 3)), ids, 30, 60)
    hits = load_exact(tmp_path / "index").search(csr_array(np.ones((1, 3))), 50).hits(0)
    assert [identifier for identifier, _ in hits] == sorted(ids)[:50]


def test_rows_of_other_documents_are_refused(tmp_path: Path) -> None:
    index = saved(tmp_path, random_vectors(6, 5, 0.8, seed=7), [f"d{row}" for row in range(6)], 2, 4)
    with pytest.raises(ArgumentError):
        index.get([6])


@pytest.mark.parametrize("order", ["same", "reversed", "shuffled"])
def test_stored_vectors_are_indexed_one_shard_at_a_time_in_any_order(tmp_path: Path, order: str) -> None:
    n = 5000
    documents, ids = random_vectors(n, 30, 0.2, seed=8), [f"d{row}" for row in range(n)]
    for number, part in enumerate(parts_of(documents, ids, 700)):
        (tmp_path / "vectors").mkdir(exist_ok=True)
        write_vectors(tmp_path / "vectors" / f"part-{number:05d}.parquet", part.ids, part.matrix, part.meta)
    rows = (
        np.random.default_rng(0).permutation(n)
        if order == "shuffled"
        else np.arange(n)[:: -1 if order != "same" else 1]
    )
    lines = "".join(f'{{"_id": "{ids[row]}", "text": "text {row}"}}\n' for row in rows.tolist())
    (tmp_path / "corpus.jsonl").write_text(lines)
    index = vo.index(str(tmp_path / "vectors"), str(tmp_path / "corpus.jsonl"), str(tmp_path / "index"), max_terms=4)
    wanted = [ids[row] for row in rows[:: n // 50].tolist()]
    stored = index.store.vectors(wanted)
    expected = vo.prune(csr_array(documents[rows[:: n // 50]]), 4)
    np.testing.assert_array_equal(csr_array(stored).toarray(), expected.toarray())
    for content, message, is_written in (
        (lines[: lines.rindex("{")], f"{n - 1} documents", True),  # noticed at the end
        (lines + '{"_id": "x", "text": "y"}\n', "'x'", False),
    ):
        (tmp_path / "other.jsonl").write_text(content)
        with pytest.raises(VectorsError, match=message):
            vo.index(str(tmp_path / "vectors"), str(tmp_path / "other.jsonl"), str(tmp_path / "other"))
        assert (tmp_path / "other").exists() == is_written
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
