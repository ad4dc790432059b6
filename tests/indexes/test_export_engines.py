"""Exported vectors in the engines they are for: Pyserini (Java 17), ciff-toolkit and BMP.

None of the three is a dependency, and what is not installed is skipped:

    pip install --no-deps pyserini==0.22.1 pyjnius ciff-toolkit==0.2.2 bmp==0.2.8

Scores are compared, not ids: documents of the same score have no order.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from vocable.encoding.vectors import VectorsMeta, write_vectors
from vocable.indexes.export import export

N, Q, V, K = 400, 30, 300, 10
POWER = 0.75
HEAVIEST_IN_BMP = 32  # of a query

needs_pyserini = pytest.mark.skipif(
    shutil.which("java") is None or find_spec("pyserini") is None or find_spec("jnius") is None,
    reason="needs Java, pyserini and pyjnius",
)


def vectors(folder: Path, role: str, rows: int, active: int) -> csr_array:
    """Store `rows` vectors whose terms are Zipf-like, so that their IDF matters, and return them."""
    generator = np.random.default_rng(rows)
    shares = 1 / np.arange(1, V + 1)
    dense = np.zeros((rows, V), dtype=np.float32)
    for row in dense:
        row[generator.choice(V, active, replace=False, p=shares / shares.sum())] = generator.uniform(0.1, 2.5, active)
    matrix = csr_array(dense)
    folder.mkdir()
    names = [f"{role}-{row}" for row in range(rows)]
    write_vectors(folder / "part-00000.parquet", names, matrix, VectorsMeta("v", "none", "max", role, 8, V))
    return matrix


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, csr_array, csr_array]:
    """The folder with documents and queries, and their vectors [n, v] and [q, v]."""
    folder = tmp_path_factory.mktemp("stored")
    return folder, vectors(folder / "documents", "document", N, 40), vectors(folder / "queries", "query", Q, 12)


def rounded(matrix: csr_array, scale: float) -> np.ndarray:
    return np.rint(matrix.toarray().astype(np.float64) * scale).astype(np.int64)


def best(scores: np.ndarray) -> list[int]:
    """The scores that a first page shows, from those of all documents."""
    return [score for score in np.sort(scores)[::-1][:K].tolist() if score > 0]


def topics(folder: Path) -> dict[str, Counter[str]]:
    lines = (folder / "topics.tsv").read_text().splitlines()
    return {name: Counter(terms.split()) for name, _, terms in (line.partition("\t") for line in lines)}


def pyserini(module: str, *arguments: object) -> str:
    """Run a command of Pyserini and return what it logs."""
    done = subprocess.run(
        [sys.executable, "-m", f"pyserini.{module}.lucene", *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@needs_pyserini
@pytest.mark.parametrize("power", [0.0, POWER])
def test_pyserini_finds_what_the_vectors_find(
    stored: tuple[Path, csr_array, csr_array], power: float, tmp_path: Path
) -> None:
    folder, documents, queries = stored
    export(folder / "documents", tmp_path / "exported")
    export(folder / "queries", tmp_path / "topics", documents=folder / "documents", query_idf=power)
    lucene, run = tmp_path / "lucene", tmp_path / "run.txt"
    how = ["--generator", "DefaultLuceneDocumentGenerator", "--impact", "--pretokenized"]
    source = ["--collection", "JsonVectorCollection", "--input", tmp_path / "exported" / "collection"]
    log = pyserini("index", *source, "--index", lucene, *how)
    assert f"{N} documents indexed" in log
    assert "Exception" not in log
    asked = ["--topics", tmp_path / "topics" / "topics.tsv", "--output", run, "--impact", "--min-idf", "-1"]
    pyserini("search", "--index", lucene, *asked, "--hits", K)
    found: dict[str, list[float]] = {}
    for line in run.read_text().splitlines():
        query, _, _, _, score, _ = line.split()
        found.setdefault(query, []).append(float(score))
    counts = (documents.toarray() > 0).sum(axis=0)
    weights = queries.toarray() * np.log(1 + (N - counts + 0.5) / (counts + 0.5)) ** power
    scores = rounded(csr_array(weights), 100) @ rounded(documents, 100).T
    assert len(found) == Q
    for row in range(Q):
        assert found[f"query-{row}"] == pytest.approx(best(scores[row]), rel=1e-6)


def test_ciff_toolkit_reads_the_postings(stored: tuple[Path, csr_array, csr_array], tmp_path: Path) -> None:
    read = pytest.importorskip("ciff_toolkit.read")
    folder, documents, _ = stored
    export(folder / "documents", tmp_path / "ciff", format="ciff")
    found = np.zeros((N, V), dtype=np.int64)
    with read.CiffReader(tmp_path / "ciff" / "index.ciff") as reader:
        assert reader.read_header().num_docs == N
        for postings in reader.read_postings_lists():
            rows = np.cumsum([one.docid for one in postings.postings])
            found[rows, int(postings.term)] = [one.tf for one in postings.postings]
        names = [one.collection_docid for one in reader.read_documents()]
    np.testing.assert_array_equal(found, rounded(documents, 100))
    assert names == [f"document-{row}" for row in range(N)]


def test_bmp_finds_the_same_up_to_its_rounding_of_queries(
    stored: tuple[Path, csr_array, csr_array], tmp_path: Path
) -> None:
    bmp = pytest.importorskip("bmp")
    folder, documents, _ = stored
    scale = 50  # a document's weights must stay below 256, and a score below 65,536
    export(folder / "documents", tmp_path / "ciff", format="ciff", scale=scale)
    export(folder / "queries", tmp_path / "topics")
    bmp.ciff2bmp(
        str(tmp_path / "ciff" / "index.ciff"), str(tmp_path / "bmp"), 8, False
    )  # small blocks: one of them is never scored
    searcher = bmp.Searcher(str(tmp_path / "bmp"))
    whole = rounded(documents, scale)
    for query in topics(tmp_path / "topics").values():
        vector, heaviest = np.zeros(V, dtype=np.int64), max(query.values())
        for term, weight in query.items():
            vector[int(term)] = np.ceil(np.float32(weight) * (np.float32(HEAVIEST_IN_BMP) / np.float32(heaviest)))
        assert (whole @ vector).max() < 1 << 16
        _, scores = searcher.search(dict(query), k=K, alpha=1.0, beta=1.0)
        assert scores == best(whole @ vector)
