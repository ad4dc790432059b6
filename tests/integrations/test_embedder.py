"""Embedders fill the stores of other frameworks: their hits are those of exact search over the same vectors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from vocable.encoding.encode import encode
from vocable.encoding.idf import idf
from vocable.encoding.models import Model
from vocable.errors import ArgumentError, DataError, MissingExtraError, ModelError, VectorsError
from vocable.integrations.embedder import Embedder, SparseRow
from vocable.integrations.fastembed import SparseTextEmbedding, register

QUERIES = ["the old fox reads", "posting lists at night"]
K = 7


class Exact(NamedTuple):
    """Texts, a model, and the scores of brute force, float32 [q, n]."""

    model: Model
    texts: list[str]
    documents: np.ndarray  # [n, v]
    queries: np.ndarray  # [q, v]

    def check(self, hits: Iterable[tuple[int, float]], query: int = 0, weights: np.ndarray | None = None) -> None:
        """Compare hits, (row, score), with those of brute force; `weights` [v] are a store's own."""
        scores = self.documents @ (self.queries[query] if weights is None else self.queries[query] * weights)
        rows, found = zip(*hits, strict=True)
        assert list(found) == pytest.approx(np.sort(scores)[::-1][:K], rel=1e-5)
        assert scores[list(rows)] == pytest.approx(list(found), rel=1e-5)
        assert len(set(rows)) == K


@pytest.fixture(scope="module")
def exact(backbones: dict[str, Path], toy_texts: list[str]) -> Exact:
    from vocable.encoding.load import load

    model, texts = load(backbones["bert"], device="cpu"), sorted(set(toy_texts))[:40]
    documents = encode(model, texts, dtype="float32").toarray()
    return Exact(model, texts, documents, encode(model, QUERIES, "query", dtype="float32").toarray())


@pytest.fixture
def client() -> Any:
    """Qdrant in this process."""
    made = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    yield made
    made.close()


def collection(client: Any, name: str, **settings: Any) -> str:
    """Make a collection of sparse vectors, and return its name."""
    from qdrant_client import models

    client.create_collection("c", sparse_vectors_config={name: models.SparseVectorParams(**settings)})
    return "c"


def test_langchain_fills_qdrant(exact: Exact, client: Any) -> None:
    store = pytest.importorskip("langchain_qdrant")
    from vocable.integrations.langchain_qdrant import LangChainQdrantEmbeddings

    sparse = LangChainQdrantEmbeddings(exact.model, dtype="float32")
    name = collection(client, "langchain-sparse")
    made = store.QdrantVectorStore(client, name, retrieval_mode=store.RetrievalMode.SPARSE, sparse_embedding=sparse)
    made.add_texts(exact.texts, [{"row": row} for row in range(40)], batch_size=16)
    for number, query in enumerate(QUERIES):
        hits = made.similarity_search_with_score(query, K)
        exact.check(((one.metadata["row"], score) for one, score in hits), number)
    assert asyncio.run(sparse.aembed_query(QUERIES[0])) == sparse.embed_query(QUERIES[0])
    assert sparse.embed_documents([]) == []


def test_langchain_fills_milvus(exact: Exact, tmp_path: Path) -> None:
    milvus = pytest.importorskip("langchain_milvus")
    from vocable.integrations.langchain_milvus import LangChainMilvusEmbeddings

    sparse = LangChainMilvusEmbeddings(exact.model, dtype="float32")
    place = {"uri": str(tmp_path / "milvus.db")}
    index = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"}
    exactly: dict[str, Any] = {
        "index_params": index,
        "search_params": {"metric_type": "IP"},
    }  # by default it drops terms
    made = milvus.Milvus(sparse, connection_args=place, auto_id=True, enable_dynamic_field=True, **exactly)
    made.add_texts(exact.texts, [{"row": row} for row in range(40)])
    for number, query in enumerate(QUERIES):
        hits = made.similarity_search_with_score(query, K)
        exact.check(((one.metadata["row"], score) for one, score in hits), number)
    assert asyncio.run(sparse.aembed_documents(exact.texts[:2])) == sparse.embed_documents(exact.texts[:2])


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")  # of Qdrant in this process
def test_llama_index_fills_qdrant(exact: Exact, client: Any) -> None:
    stores = pytest.importorskip("llama_index.vector_stores.qdrant")
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

    from vocable.integrations.llama_index import LlamaIndexEmbedding

    sparse = LlamaIndexEmbedding(exact.model, dtype="float32")
    functions = {"sparse_doc_fn": sparse.documents, "sparse_query_fn": sparse.queries}
    made = stores.QdrantVectorStore("c", client=client, enable_hybrid=True, **functions)
    unread: dict[str, Any] = {"embedding": [1.0], "excluded_embed_metadata_keys": ["row"]}  # else it is in the text
    made.add([TextNode(text=text, metadata={"row": row}, **unread) for row, text in enumerate(exact.texts)])
    for number, query in enumerate(QUERIES):
        asked = VectorStoreQuery([1.0], K, query_str=query, mode=VectorStoreQueryMode.SPARSE, sparse_top_k=K)
        found = made.query(asked)
        rows = [node.metadata["row"] for node in found.nodes]
        exact.check(zip(rows, found.similarities, strict=True), number)


def test_llama_index_embeds_texts_and_queries(exact: Exact) -> None:
    pytest.importorskip("llama_index.core")
    from vocable.integrations.llama_index import LlamaIndexEmbedding

    sparse, embedder = LlamaIndexEmbedding(exact.model, dtype="float32"), Embedder(exact.model, dtype="float32")
    documents = [row.as_dict() for row in embedder.documents(exact.texts)]
    [query] = [row.as_dict() for row in embedder.queries(QUERIES[:1])]
    assert sparse.get_text_embedding_batch(exact.texts) == [pytest.approx(one, rel=1e-5) for one in documents]
    assert sparse.get_text_embedding(exact.texts[0]) == pytest.approx(documents[0], rel=1e-5)
    assert sparse.get_query_embedding(QUERIES[0]) == query == asyncio.run(sparse.aget_query_embedding(QUERIES[0]))
    assert asyncio.run(sparse.aget_text_embedding_batch(exact.texts[:3])) == [
        pytest.approx(one, rel=1e-5) for one in documents[:3]
    ]
    assert asyncio.run(sparse.aget_text_embedding(exact.texts[0])) == pytest.approx(documents[0], rel=1e-5)
    assert Path(sparse.model_name).is_dir()
    assert sparse.documents([]) == ([], [])


def test_haystack_fills_qdrant(exact: Exact, backbones: dict[str, Path]) -> None:
    pytest.importorskip("haystack_integrations.document_stores.qdrant")
    import haystack
    from haystack_integrations.components.retrievers.qdrant import QdrantSparseEmbeddingRetriever
    from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

    from vocable.integrations.haystack import HaystackDocumentEmbedder, HaystackTextEmbedder

    options: dict[str, Any] = {"dtype": "float32", "device": "cpu"}
    store = QdrantDocumentStore(":memory:", use_sparse_embeddings=True, embedding_dim=2)
    documents = [haystack.Document(content=text, meta={"row": row}) for row, text in enumerate(exact.texts)]
    made = HaystackDocumentEmbedder(backbones["bert"], **options).run(documents)["documents"]
    assert documents[0].sparse_embedding is None
    store.write_documents(made)
    pipeline = haystack.Pipeline()
    pipeline.add_component("embedder", HaystackTextEmbedder(backbones["bert"], **options))
    pipeline.add_component("retriever", QdrantSparseEmbeddingRetriever(store, top_k=K))
    pipeline.connect("embedder.sparse_embedding", "retriever.query_sparse_embedding")
    for number, query in enumerate(QUERIES):
        hits = pipeline.run({"embedder": {"text": query}})["retriever"]["documents"]
        exact.check([(one.meta["row"], one.score) for one in hits], number)


def test_a_pipeline_of_haystack_is_written_and_read(exact: Exact, backbones: dict[str, Path]) -> None:
    haystack = pytest.importorskip("haystack")
    from vocable.integrations.haystack import HaystackDocumentEmbedder

    pipeline = haystack.Pipeline()
    options: dict[str, Any] = {"dtype": "float32", "device": "cpu", "max_terms": 9}
    pipeline.add_component("embedder", HaystackDocumentEmbedder(backbones["bert"], ["title", "year"], **options))
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["vocable.integrations.haystack"])
    assert again.dumps() == pipeline.dumps()
    again.warm_up()
    document = haystack.Document(content="the old fox", meta={"title": "A tale", "year": 1999, "none": None})
    [made] = again.run({"embedder": {"documents": [document]}})["embedder"]["documents"]
    [row] = Embedder(exact.model, dtype="float32", max_terms=9).documents(["A tale\n1999\nthe old fox"])
    assert made.sparse_embedding.to_dict() == row.as_lists()
    assert (made.id, made.content, made.meta) == (document.id, document.content, document.meta)
    with pytest.raises(ArgumentError, match="max_term: "):
        HaystackDocumentEmbedder(max_term=9)  # type: ignore[call-arg]


def test_the_interface_of_fastembed_fills_qdrant(exact: Exact, client: Any) -> None:
    from qdrant_client import models

    embedding = SparseTextEmbedding(exact.model, dtype="float32")
    name = collection(client, "sparse")
    vectors = embedding.embed((text for text in exact.texts), batch_size=16)
    points = [models.PointStruct(id=row, vector={"sparse": one.as_lists()}) for row, one in enumerate(vectors)]
    client.upsert(name, points)
    for number, one in enumerate(embedding.query_embed(QUERIES, batch_size=1)):
        vector = models.SparseVector(**one.as_lists())
        exact.check(
            ((hit.id, hit.score) for hit in client.query_points(name, vector, "sparse", limit=K).points), number
        )
    [passage], [text] = embedding.passage_embed("the old fox"), embedding.embed("the old fox")
    assert passage.as_dict() == text.as_dict() == dict(zip(*text.as_object().values(), strict=True))
    assert text.indices.dtype == np.int32
    assert text.values.dtype == np.float32
    assert list(embedding.embed([])) == []


def test_qdrant_multiplies_by_the_idf(exact: Exact, client: Any) -> None:
    from qdrant_client import models

    embedder = Embedder(exact.model, dtype="float32", query_idf=0)
    name = collection(client, "sparse", modifier=models.Modifier.IDF)
    points = enumerate(embedder.documents(exact.texts))
    client.upsert(name, [models.PointStruct(id=row, vector={"sparse": one.as_lists()}) for row, one in points])
    [query] = embedder.queries(QUERIES[:1])
    hits = client.query_points(name, models.SparseVector(**query.as_lists()), "sparse", limit=K).points
    weights = idf((exact.documents > 0).sum(axis=0), len(exact.texts))
    exact.check(((hit.id, hit.score) for hit in hits), weights=weights)


def test_writer_give_queries_their_idf(
    exact: Exact, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encode(exact.model, str(corpus), output=tmp_path / "vectors", name="toy", dtype="float32")
    [row] = Embedder(exact.model, dtype="float32", documents=tmp_path / "vectors", query_idf=0.5).queries(QUERIES[:1])
    assert not caplog.records
    from vocable.encoding.vectors import read_shards

    [shard] = read_shards(tmp_path / "vectors")
    weights = idf(np.bincount(shard.matrix.indices, minlength=exact.queries.shape[1]), len(shard.ids)) ** 0.5
    expected = exact.queries[0] * weights
    assert row.as_dict() == pytest.approx({int(i): expected[i] for i in np.flatnonzero(expected)}, rel=1e-5)
    embedder = Embedder(exact.model, query_idf=0.5)
    embedder.documents(QUERIES[:1])
    assert not caplog.records
    for query in QUERIES[:2]:
        embedder.queries([query])
    [record] = caplog.records
    assert "without IDF (query_idf 0.5): give documents=VECTORS, or query_idf=0" in record.getMessage()
    with pytest.raises(VectorsError):
        Embedder(exact.model, documents=tmp_path / "none")


def test_documents_through_fastembed(exact: Exact, backbones: dict[str, Path], client: Any) -> None:
    fastembed = pytest.importorskip("fastembed", reason="fastembed needs huggingface_hub before 2")
    from qdrant_client import models

    model = str(backbones["bert"])
    register(model, query_idf=0, dtype="float32", device="cpu")
    register(model, query_idf=0, dtype="float32", device="cpu")
    assert fastembed.SparseTextEmbedding.EMBEDDINGS_REGISTRY.count(SparseTextEmbedding) == 1
    name = collection(client, "sparse")
    made = [models.Document(text=text, model=model) for text in exact.texts]
    client.upsert(name, [models.PointStruct(id=row, vector={"sparse": one}) for row, one in enumerate(made)])
    for number, query in enumerate(QUERIES):
        hits = client.query_points(name, models.Document(text=query, model=model), "sparse", limit=K).points
        exact.check(((hit.id, hit.score) for hit in hits), number)
    [row] = fastembed.SparseTextEmbedding(model).query_embed(QUERIES[0])
    assert row.as_dict() == Embedder(exact.model, dtype="float32").queries(QUERIES[:1])[0].as_dict()
    known = {one["model"]: one["requires_idf"] for one in fastembed.SparseTextEmbedding.list_supported_models()}
    assert known[model] is True
    with pytest.raises(ArgumentError):
        fastembed.SparseTextEmbedding(model, providers=["CUDAExecutionProvider"])


def test_rows_are_in_order_and_those_of_the_role(exact: Exact) -> None:
    embedder = Embedder(exact.model, dtype="float32")
    for rows, matrix in (
        (embedder.documents(exact.texts), exact.documents),
        (embedder.queries(QUERIES), exact.queries),
    ):
        for row, expected in zip(rows, matrix, strict=True):
            assert row.indices.tolist() == np.flatnonzero(expected).tolist()
            assert row.values == pytest.approx(expected[row.indices], rel=1e-6)
    empty = embedder.documents(["", "the old fox"])[0]
    assert (empty.as_lists(), empty.as_dict()) == ({"indices": [], "values": []}, {})
    assert embedder.documents([]) == embedder.queries([]) == []
    with pytest.raises((ArgumentError, DataError)):
        embedder.documents("the old fox")


def test_embedding_from_many_threads_is_that_of_one(exact: Exact) -> None:
    embedder = Embedder(exact.model, dtype="float32")
    with ThreadPoolExecutor(8) as pool:
        several = list(pool.map(lambda text: embedder.documents([text])[0], exact.texts))
    for row, expected in zip(several, exact.documents, strict=True):
        assert row.indices.tolist() == np.flatnonzero(expected).tolist()


def test_options_of_an_embedder_that_cannot_be_are_refused(
    exact: Exact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError):
        Embedder(exact.model, max_terms=0)
    with pytest.raises(ArgumentError):
        Embedder(exact.model, long_documents="passages")
    with pytest.raises(ModelError):
        Embedder(tmp_path / "none")
    with pytest.raises(ArgumentError):
        SparseTextEmbedding(exact.model, threads=2)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vocable\[fastembed\]'"):
        register("vocable-mini")


@pytest.mark.parametrize(("module", "package"), [("langchain_qdrant", "langchain_qdrant"), ("langchain_milvus",) * 2])
def test_a_package_that_is_missing_is_named(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"vocable.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'vocable\[{package.replace('_', '-')}\]'"):
        import_module(f"vocable.integrations.{module}")


def test_the_built_in_model_needs_no_torch() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'sentence_transformers']))\n"
        "from vocable.integrations.embedder import Embedder\n"
        "embedder = Embedder('vocable-mini', query_idf=0)\n"
        "print(len(embedder.queries(['no duplicates'])[0].indices), len(embedder.documents(['a set'])[0].indices))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    query, document = map(int, done.stdout.split())
    assert 0 < query <= 48
    assert 0 < document <= 160
    assert SparseRow._fields == ("indices", "values")
