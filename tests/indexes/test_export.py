"""Vectors in the forms of other engines, read back by other means."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from tests.cli.command_line import done
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.vectors import VectorsMeta, write_vectors
from vocable.errors import ArgumentError, VocableError
from vocable.indexes.export import Exported, export
from vocable.integrations.pyserini import QueryEncoder

WEIGHTS = csr_array(np.float32([[0, 1.25, 0.001, 0], [0, 0, 0, 0], [2.5, 0.014, 0, 3.999], [0, 3, 0, 0]]))
IDS = ["a'b", "Ålesund", "x/y", "d"]
WHOLE = np.rint(WEIGHTS.toarray().astype(np.float64) * 100).astype(int)


def stored(folder: Path, role: str = "document") -> Path:
    meta = VectorsMeta("v", "a model", "max", role, 8, 4)
    folder.mkdir()
    for part in (0, 1):
        rows = slice(2 * part, 2 * part + 2)
        write_vectors(folder / f"part-0000{part}.parquet", IDS[rows], WEIGHTS[rows], meta)
    return folder


def test_documents_for_anserini(tmp_path: Path) -> None:
    found = export(stored(tmp_path / "in"), tmp_path / "out")
    assert found == Exported(vectors=4, weights=5, lost=1, heaviest=400, scale=100, role="document")
    rows = [
        json.loads(line) for line in (tmp_path / "out" / "collection" / "vectors.jsonl").read_text("utf-8").splitlines()
    ]
    assert [row["id"] for row in rows] == IDS
    read = np.zeros((4, 4), dtype=int)
    for number, row in enumerate(rows):
        for term, weight in row["vector"].items():
            read[number, int(term)] = weight
    np.testing.assert_array_equal(read, WHOLE)
    assert export(tmp_path / "in", tmp_path / "out") == found
    assert [path.name for path in (tmp_path / "out" / "collection").iterdir()] == ["vectors.jsonl"]
    with pytest.raises(ArgumentError):
        export(tmp_path / "in", tmp_path / "out", scale=10)


def test_queries_are_topics(tmp_path: Path) -> None:
    export(stored(tmp_path / "in", "query"), tmp_path / "out", scale=10)
    lines = (tmp_path / "out" / "topics.tsv").read_text("utf-8").splitlines()
    assert lines[0] == "a'b\t" + " ".join(["1"] * 12)
    assert lines[1] == "Ålesund\t"
    assert sorted(lines[2].split("\t")[1].split()) == ["0"] * 25 + ["3"] * 40
    with pytest.raises(ArgumentError):
        export(tmp_path / "in", tmp_path / "other", format="ciff")
    assert not (tmp_path / "other").exists()


def test_topics_weighed_by_the_idf_of_the_documents(tmp_path: Path) -> None:
    queries, documents = stored(tmp_path / "queries", "query"), stored(tmp_path / "documents")
    found = export(queries, tmp_path / "out", documents=documents, query_idf=0.5)
    assert found.query_idf == 0.5
    assert found.model_idf is None  # there is no such model
    counts = (WEIGHTS.toarray() > 0).sum(axis=0)
    wanted = np.rint(WEIGHTS.toarray() * np.log(1 + (4 - counts + 0.5) / (counts + 0.5)) ** 0.5 * 100)
    read = np.zeros((4, 4))
    for row, line in enumerate((tmp_path / "out" / "topics.tsv").read_text("utf-8").splitlines()):
        for term in line.partition("\t")[2].split():
            read[row, int(term)] += 1
    np.testing.assert_array_equal(read, wanted)
    assert export(queries, tmp_path / "out", documents=documents, query_idf=0.5) == found
    for others in ({"query_idf": 1.0}, {"query_idf": 0.5, "scale": 10}):
        with pytest.raises(ArgumentError):
            export(queries, tmp_path / "out", documents=documents, **others)


def test_the_idf_needs_documents_of_the_same_vocabulary_and_a_power(tmp_path: Path) -> None:
    queries, documents = stored(tmp_path / "queries", "query"), stored(tmp_path / "documents")
    write_vectors(tmp_path / "other.parquet", IDS, WEIGHTS, VectorsMeta("w", "another", "max", "document", 8, 4))
    for message, wrong in {
        "a model cannot be opened.*query_idf": {"documents": documents},
        "`query_idf` goes with": {"query_idf": 0.5},
        "query vectors": {"documents": queries, "query_idf": 0.5},
        "of another": {"documents": tmp_path / "other.parquet", "query_idf": 0.5},
        "query_idf must be": {"documents": documents, "query_idf": -1.0},
    }.items():
        with pytest.raises(VocableError, match=message):
            export(queries, tmp_path / "out", **wrong)
    with pytest.raises(ArgumentError):
        export(documents, tmp_path / "out", documents=documents, query_idf=0.5)
    assert not (tmp_path / "out").exists()


def messages() -> dict[str, Any]:
    """The messages of CIFF, as its specification has them."""
    protobuf = pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    assert protobuf
    kinds = {"int32": 5, "int64": 3, "double": 1, "string": 9, "message": 11}
    said = {
        "Header": "int32 version|int32 num_postings_lists|int32 num_docs|int32 total_postings_lists|int32 total_docs|"
        "int64 total_terms_in_collection|double average_doclength|string description",
        "Posting": "int32 docid|int32 tf",
        "PostingsList": "string term|int64 df|int64 cf|message postings",
        "DocRecord": "int32 docid|string collection_docid|int32 doclength",
    }
    file = descriptor_pb2.FileDescriptorProto(name="ciff.proto", package="ciff", syntax="proto3")
    for name, fields in said.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split("|"), start=1):
            kind, label = field.split()
            added = message.field.add(name=label, number=number, type=kinds[kind], label=3 if kind == "message" else 1)
            if kind == "message":
                added.type_name = ".ciff.Posting"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ciff.{name}")) for name in said}


def test_ciff_is_read_back(tmp_path: Path) -> None:
    kinds = messages()
    found = export(stored(tmp_path / "in"), tmp_path / "out", format="ciff")
    assert (found.weights, found.lost) == (5, 1)
    content, place = (tmp_path / "out" / "index.ciff").read_bytes(), 0

    def following(kind: str) -> Any:
        nonlocal place
        size = shift = 0
        while True:
            byte = content[place]
            place += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        message = kinds[kind].FromString(content[place : place + size])
        place += size
        return message

    header = following("Header")
    assert (header.version, header.num_postings_lists, header.num_docs) == (1, 3, 4)
    assert (header.total_terms_in_collection, header.average_doclength) == (WHOLE.sum(), WHOLE.sum() / 4)
    read, terms = np.zeros((4, 4), dtype=int), []
    for _ in range(header.num_postings_lists):
        postings = following("PostingsList")
        terms.append(postings.term)
        documents = np.cumsum([posting.docid for posting in postings.postings])
        weights = [posting.tf for posting in postings.postings]
        read[documents, int(postings.term)] = weights
        assert (postings.df, postings.cf) == (len(weights), sum(weights))
    np.testing.assert_array_equal(read, WHOLE)
    assert terms == sorted(terms)
    records = [following("DocRecord") for _ in range(header.num_docs)]
    assert [(one.docid, one.collection_docid, one.doclength) for one in records] == [
        (row, name, WHOLE[row].sum()) for row, name in enumerate(IDS)
    ]
    assert place == len(content)


def test_the_command_export_writes_the_files_of_the_function(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, quiet_libraries: None
) -> None:
    text = done(capsys, "export", stored(tmp_path / "in"), "-o", tmp_path / "out", "--format", "ciff")
    assert "5 weights" in text
    assert "1 rounded to 0" in text
    assert "query_idf" in text


def test_the_command_says_whether_the_models_idf_is_in_the_topics(
    capsys: pytest.CaptureFixture[str], toy_model: SparseEncoder, tmp_path: Path, quiet_libraries: None
) -> None:
    toy_model[0].auto_model.config.query_idf = 0.5
    toy_model.save_pretrained(str(tmp_path / "model"))
    source = tmp_path / "texts.jsonl"
    source.write_text('{"_id": "1", "text": "the old fox reads"}\n{"_id": "2", "text": "the library"}\n')
    for role in ("query", "document"):
        encode(load(str(tmp_path / "model")), str(source), role, output=tmp_path / role, name=str(tmp_path / "model"))
    text = done(capsys, "export", tmp_path / "query", "-o", tmp_path / "plain")
    assert "query_idf 0.5" in text
    assert "--documents" in text
    text = done(capsys, "export", tmp_path / "query", "-o", tmp_path / "weighed", "--documents", tmp_path / "document")
    assert "to the power 0.5" in text
    plain, weighed = ((tmp_path / name / "topics.tsv").read_text() for name in ("plain", "weighed"))
    assert plain != weighed
    encoder = QueryEncoder(toy_model, documents=tmp_path / "document")
    assert encoder.encode("the old fox reads") == Counter(weighed.splitlines()[0].split("\t")[1].split())
