"""The published encoder: its files, and the refusals of packages and models."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.publishing.conftest import Fake
from tests.publishing.reader import PublishedSite
from tests.publishing.reading import read_file
from tests.toys import write_corpus
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.data import Document
from vocable.encoding.hub import locate
from vocable.encoding.idf import idf
from vocable.encoding.load import load_encoder
from vocable.errors import ArgumentError, ModelError
from vocable.publishing.files import DATA, name_of, size_of
from vocable.publishing.publication import publish

POLICY = "script-src 'self' 'wasm-unsafe-eval';"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of 36 MB are compressed little."""
    monkeypatch.setattr("vocable.publishing.files.LEVEL", 1)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_files_of_an_encoder_are_named_and_go_with_it(encodable: Path, runtime: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    plain = publish(encodable, site)
    before = files_of(site)
    made = publish(encodable, site, encoder=runtime)
    found, manifest = files_of(site), PublishedSite(site).manifest
    encoder = manifest.encoder
    assert encoder is not None
    model, contents = Path(locate("vocable-mini")), [read_file(site, name) for name in encoder.files]
    assert contents[0] == (runtime / "dist" / "ort-wasm-simd-threaded.wasm").read_bytes()
    assert contents[1] == (model / "onnx" / "model_quantized.onnx").read_bytes()
    vocabulary = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert {token: place for place, token in enumerate(json.loads(contents[2]))} == vocabulary
    assert (encoder.prompt, encoder.longest, encoder.before, encoder.after) == ("", 126, [101], [102])
    scripts = {name: content for name, content in found.items() if name.startswith("encoder/")}
    assert scripts["encoder/onnxruntime.js"] == (runtime / "dist" / "ort.wasm.bundle.min.mjs").read_bytes()
    assert {name: manifest.page[name] for name in scripts} == {name: name_of(one) for name, one in scripts.items()}
    assert encoder.nbytes == sum(map(size_of, encoder.files)) + sum(map(len, scripts.values()))
    data = sum(len(content) for name, content in found.items() if name.startswith(f"{DATA}/"))
    assert manifest.nbytes == data - sum(map(size_of, encoder.files))
    assert made.nbytes == sum(map(len, found.values()))
    assert POLICY.encode() in found["index.html"]
    assert b"script-src 'self';" in before["index.html"]
    with tarfile.open(tmp_path / "packed.tgz", "w:gz") as packed:
        packed.add(runtime, "package")
    assert publish(encodable, site, encoder=tmp_path / "packed.tgz").written == 0
    again = publish(encodable, site)
    assert files_of(site) == before
    assert (again.files, again.removed >= 6) == (plain.files, True)


def test_encoded_queries_have_the_scores_of_the_index(encodable: Path, encoding_site: Path) -> None:
    """A weight is off by half a step of 1/255 of its term's largest, a score by the sum over its terms."""
    collection, published = open_index(encodable), PublishedSite(encoding_site)
    encoder = collection.models.queries(query_idf=0.0)
    queries = ["the old fox", "Every compiler rewrites posting lists", ""]
    vectors, weighed = encoder.encode(queries), collection.models.queries().encode(queries)
    stored = collection.vectors(published.ids)
    largest = stored.max(axis=0).toarray().ravel()
    exact = (stored @ weighed.T).toarray()
    ranking = published.search(queries, k=len(published), hybrid=False, vectors=vectors)
    for row in range(len(queries)):
        found = np.zeros(len(published))
        hits = ranking.rows[row] >= 0
        found[ranking.rows[row][hits]] = ranking.scores[row][hits]
        rounding = weighed[[row]].multiply(largest).sum() / 255
        np.testing.assert_allclose(found, exact[:, row], atol=rounding + 1e-4)
    assert (ranking.rows[1] >= 0).sum() > 5
    fused = published.search(queries, 10, vectors=vectors)
    theirs = collection.search(queries, 10)
    assert [name for name, _ in fused.hits(1)][:3] == [name for name, _ in theirs.hits(1)][:3]


def test_an_exported_model_is_looked_up_by_the_idf_of_its_tokens(runtime: Path, tmp_path: Path) -> None:
    shutil.copytree(locate("vocable-mini"), tmp_path / "mine")
    texts = ["A fox jumps over a lazy dog.", "Sparse vectors of a librarian", "Owls hoot at night, as a fox does."]
    corpus = write_corpus([Document(str(i), text) for i, text in enumerate(texts)], tmp_path / "corpus.jsonl")
    index(str(tmp_path / "mine"), corpus, tmp_path / "index", device="cpu", runtime="onnx").close()
    with pytest.raises(ModelError):
        publish(tmp_path / "index", tmp_path / "site")
    publish(tmp_path / "index", tmp_path / "site", encoder=runtime)
    published, model = PublishedSite(tmp_path / "site"), load_encoder(str(tmp_path / "mine"), runtime="onnx")
    [(fox, weight)] = published.terms("fox")
    assert fox.factor == pytest.approx(float(idf(np.array([2]), 3)[0]) ** 0.25)
    assert weight == pytest.approx(fox.factor * float(idf(np.array([fox.documents]), 3)[0]) ** 0.75)
    assert published.search(["night birds"]).hits(0)[0][0] == "2"
    size = len(model.terms)
    row = csr_array((np.array([2.0]), ([0], [model.terms.index("fox")])), shape=(1, size))
    [[(_, given)]] = published.encoded_terms(row)
    assert given * fox.factor == pytest.approx(2 * weight)


def _without(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).unlink()


def _renamed(place: Path) -> None:
    (place / "package.json").write_text('{"name": "lunr", "version": "2.3.9"}')


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without("package.json"), "package.json"),
        (_without("dist/ort.wasm.bundle.min.mjs"), "ort.wasm.bundle.min.mjs"),
        (_without("dist/ort-wasm-simd-threaded.wasm"), "ort-wasm-simd-threaded.wasm"),
        (_renamed, "lunr"),
        (lambda place: (place / "package.json").write_text("[]"), "package.json|indices"),
    ],
)
def test_another_package_is_refused(
    encodable: Path, runtime: Path, tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    shutil.copytree(runtime, tmp_path / "package")
    change(tmp_path / "package")
    with tarfile.open(tmp_path / "packed.tgz", "w:gz") as packed:
        packed.add(tmp_path / "package", "package")
    for place in ("package", "packed.tgz"):
        with pytest.raises(ArgumentError, match=rf"{place}: .*npm pack onnxruntime-web.*({said})"):
            publish(encodable, tmp_path / "site", encoder=tmp_path / place)
    assert not (tmp_path / "site").exists()


def test_a_damaged_package_is_refused(encodable: Path, runtime: Path, tmp_path: Path) -> None:
    place = tmp_path / "packed.tgz"
    with tarfile.open(place, "w:gz") as packed:
        packed.add(runtime, "package")
    whole = place.read_bytes()
    for content in (whole[:-20], whole[: len(whole) // 2], b"", b"no archive"):
        place.write_bytes(content)
        with pytest.raises(ArgumentError):
            publish(encodable, tmp_path / "site", encoder=place)
    with pytest.raises(ArgumentError):
        publish(encodable, tmp_path / "site", encoder=tmp_path / "none")


def test_models_without_a_graph_of_queries_are_refused(
    indexed: Path, runtime: Path, site: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError):
        publish(indexed, tmp_path / "site", encoder=runtime)
    assert not (tmp_path / "site").exists()
    with pytest.raises(ArgumentError):
        PublishedSite(site).search(["fox"], vectors=csr_array((1, 10)))


def test_the_fake_gives_the_weights_that_the_tests_expect() -> None:
    assert Fake.weights([7, 9]) == {7: 1.5, 9: 2.0, 50: 0.5, 64: 0.5}
