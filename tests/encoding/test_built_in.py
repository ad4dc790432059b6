"""The built-in models: what they carry, and that the one with queries by lookup has the documents of the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from vocable.collection.answers import search
from vocable.collection.index import index
from vocable.encoding.encode import encode
from vocable.encoding.hub import locate
from vocable.encoding.load import load
from vocable.encoding.models import model_name
from vocable.encoding.terms import input_terms
from vocable.encoding.text_encoder import TextEncoder

TEXTS = ["Remove a directory and all that is in it.", "A list of random numbers without repetition, sorted."]


def test_queries_are_looked_up_beside_the_same_documents(tmp_path: Path) -> None:
    encoded, looked_up = load("vocable-mini"), load("vocable-mini-doc")
    found, expected = (encode(model, TEXTS, dtype="float32").toarray() for model in (looked_up, encoded))
    np.testing.assert_array_equal(found, expected)
    queries = encode(looked_up, TEXTS, "query").toarray()
    own = input_terms(encoded, TEXTS).sign().toarray()
    np.testing.assert_array_equal(queries > 0, own > 0)
    assert model_name(looked_up) == "vocable-mini-doc"  # by which an index finds it again
    looked_up.save_pretrained(str(tmp_path / "saved"))
    again = load(tmp_path / "saved")
    np.testing.assert_array_equal(encode(again, TEXTS, "query").toarray(), queries)
    files = [file for file in Path(locate("vocable-mini-doc")).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 200_000  # not the encoder a second time


def test_both_weigh_queries_by_the_collection(tmp_path: Path) -> None:
    rows = [{"_id": f"d{i}", "text": text} for i, text in enumerate([*TEXTS, "Sort a list in place."])]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name in ("vocable-mini", "vocable-mini-doc"):
        index(name, tmp_path / "corpus.jsonl", tmp_path / name)
        [answer] = search(tmp_path / name, ["delete a folder"])
        assert answer.hits[0].document.id == "d0"
        assert TextEncoder(load(name), "query").query_idf == 0.75
