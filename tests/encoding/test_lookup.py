"""Tables of tokens: dense vectors of queries against sums in NumPy, and files that are missing or damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from vocable.collection.answers import search
from vocable.collection.index import index
from vocable.encoding.dense_models import QUERY_VECTORS, dense_fingerprint, load_dense
from vocable.encoding.hub import BUILT_IN_DENSE, BUILT_IN_MODEL, BY_LOOKUP, locate
from vocable.encoding.lookup import VectorTable, read_tables
from vocable.errors import ModelError

TEXTS = ["A fox reads at night.", "Owls forget the lazy dog.", "Remove a directory and all that is in it."]
TABLE = Path(locate(BUILT_IN_DENSE), QUERY_VECTORS)


def expected(texts: list[str]) -> np.ndarray:
    """The sums of the rows of the shipped table, at length 1, without any code of vocable."""
    tokenizer, table = Tokenizer.from_file(str(TABLE.with_name("tokenizer.json"))), load_file(TABLE)
    vectors = np.zeros((len(texts), table["rows"].shape[1]))
    for number, text in enumerate(texts):
        for token in tokenizer.encode(text, add_special_tokens=False).ids:
            vectors[number] += table["rows"][token] * float(table["scales"][token])
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


@given(st.lists(st.text(st.sampled_from("aefoxn '-.9ü雪"), max_size=30), min_size=1, max_size=4))
def test_a_looked_up_query_is_the_sum_of_its_tokens_at_length_one(texts: list[str]) -> None:
    model = load_dense(BUILT_IN_DENSE, sparse=BY_LOOKUP)
    found = model.encode_query(texts, show_progress_bar=False)
    np.testing.assert_allclose(found, expected(texts), atol=1e-5)


def test_looked_up_queries_are_near_encoded_queries_and_documents_are_encoded() -> None:
    looked_up, encoded = load_dense(BUILT_IN_DENSE, sparse=BY_LOOKUP), load_dense(BUILT_IN_DENSE)
    queries = ["how to remove duplicates from a list", "treatment of lung cancer", "history of the Norwegian language"]
    pairs = [model.encode_query(queries, show_progress_bar=False) for model in (looked_up, encoded)]
    assert (pairs[0] * pairs[1]).sum(axis=1).min() > 0.7
    documents = [model.encode_document(TEXTS, show_progress_bar=False) for model in (looked_up, encoded)]
    np.testing.assert_array_equal(*documents)
    ours, theirs = dense_fingerprint(looked_up), dense_fingerprint(encoded)
    assert ours.keys() - theirs.keys() == {"query_vectors"}
    assert {part: ours[part] for part in theirs} == theirs  # one index serves both


@given(st.integers(0, 2**32 - 1), st.floats(0.001, 1000))
def test_eight_bits_keep_a_row_to_a_half_step_of_its_largest_number(seed: int, size: float) -> None:
    vectors = (np.random.default_rng(seed).normal(size=(5, 7)) * size).astype(np.float32)
    vectors[2] = 0
    table = VectorTable.of(vectors)
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 127
    assert (np.abs(table.rows * table.scales[:, None] - vectors) <= 0.5001 * steps).all()
    assert not table.looked_up([[2], []]).any()


def test_a_search_by_the_model_without_an_encoder_has_three_kinds_and_loads_no_graph(tmp_path: Path) -> None:
    for made_by in (BUILT_IN_MODEL, BY_LOOKUP):
        index(made_by, TEXTS, tmp_path / made_by).close()
    with index(BUILT_IN_MODEL, TEXTS) as collection:
        model = collection.with_model(BY_LOOKUP)
        [answer] = search(model, ["night of a fox"], 3, weights={"dense": 1.0})
        cosines = (
            load_dense(BUILT_IN_DENSE).encode_document(TEXTS, show_progress_bar=False) @ expected(["night of a fox"])[0]
        )
        assert answer.hits[0].document.text == TEXTS[int(np.argmax(cosines))]
        assert answer.hits[0].score == pytest.approx(cosines.max(), abs=0.01)  # documents have 8 bits
    program = (
        "import sys, vocable as vo; index = vo.open_index(sys.argv[1]); hits = vo.search(index, ['a fox'])[0].hits; "
        "assert index.spaces == ('sparse', 'bm25', 'dense') and hits and 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / BY_LOOKUP)], check=True)


@pytest.mark.parametrize("content", [None, b"no tensors"])
def test_a_missing_or_damaged_table_is_an_error_that_names_it(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / QUERY_VECTORS
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError) as error:
        read_tables(path, "rows", "scales")
    assert QUERY_VECTORS in str(error.value)
    save_file({"rows": np.zeros((2, 2), np.int8)}, path)
    with pytest.raises(ModelError) as error:
        read_tables(path, "rows", "scales")
    assert "scales" in str(error.value)
