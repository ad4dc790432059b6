"""A tokenizer that was exchanged under an index, and texts in a script that the vocabulary lacks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.collection.verbs import add
from vocable.data import Document
from vocable.errors import VectorsError
from vocable.service.view import ViewRequest, view


def corpus(path: Path, documents: Sequence[Document]) -> Path:
    rows = [{"_id": document.id, "title": document.title, "text": document.text} for document in documents]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def exchange_words(tokenizer: Path, first: str, second: str) -> None:
    """Exchange the numbers of two words in a tokenizer of word pieces."""
    content = json.loads(tokenizer.read_text(encoding="utf-8"))
    numbers = content["model"]["vocab"]
    numbers[first], numbers[second] = numbers[second], numbers[first]
    tokenizer.write_text(json.dumps(content), encoding="utf-8")


def state(collection: Collection) -> tuple[int, list[Document | None], list[list[float]]]:
    """The number of documents, the documents and their vectors."""
    ids = sorted(collection.store.ids())
    return len(collection), collection.documents(ids), collection.vectors(ids).toarray().tolist()


@pytest.fixture(params=["torch", "onnx"])
def model(request: pytest.FixtureRequest, backbones: dict[str, Path], tmp_path: Path) -> Path:
    made = backbones["bert"] if request.param == "torch" else request.getfixturevalue("graph")
    return Path(shutil.copytree(made, tmp_path / "model"))


@pytest.mark.slow
def test_add_and_search_refuse_an_exchanged_tokenizer_and_write_nothing(
    model: Path, documents: list[Document], tmp_path: Path
) -> None:
    place, more = tmp_path / "index", corpus(tmp_path / "more.jsonl", documents[3:12])
    index(str(model), corpus(tmp_path / "corpus.jsonl", documents[:9]), place, device="cpu").close()
    with open_index(place, device="cpu") as collection:
        whole = state(collection)
    tokenizer = model / "tokenizer.json"
    kept = tokenizer.read_bytes()
    exchange_words(tokenizer, "fox", "owl")
    for allowed, message in ((False, r"has changed .*\(tokenizer\)"), (True, "the vocabulary of .* is not the one")):
        with open_index(place, device="cpu", allow_changed_model=allowed) as collection:
            with pytest.raises(VectorsError, match=message):
                collection.add(documents[3:12])
            assert state(collection) == whole
    with pytest.raises(VectorsError, match=r"\(tokenizer\)"):
        add(place, more)
    with pytest.raises(VectorsError):
        search(place, ["fox"], 3)
    tokenizer.write_bytes(kept)
    assert add(place, more).added == 3


@pytest.mark.parametrize(
    ("texts", "spaces"),
    [
        (["北京大学的图书馆", "文件系统设置", "图书馆关闭"], ("bm25",)),
        (["A librarian reads books.", "The old fox sleeps.", "Books at night."], ("sparse", "bm25")),
    ],
)
def test_a_search_leaves_out_vectors_of_texts_that_the_vocabulary_lacks(
    texts: list[str], spaces: tuple[str, ...], backbones: dict[str, Path], tmp_path: Path
) -> None:
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    place, query = tmp_path / "index", [texts[0][-5:]]
    with index(str(backbones["bert"]), corpus(tmp_path / "corpus.jsonl", documents), place, bm25=True) as made:
        assert made.searcher.query_spaces == spaces
        named = made.search(query, 3, weights=dict.fromkeys(spaces, 1.0))
        assert made.search(query, 3).hits(0) == named.hits(0) != []
        assert made.search(query, 3, weights="sparse=1,bm25=1").rows.shape == (1, 3)
        seen = view(made, ViewRequest(query=query[0], show=["bm25"]), made.models.queries().encode(query))
        assert seen.rankings == ["sparse", "bm25", *["hybrid"] * (len(spaces) > 1)]
