"""The verb publish: its files, updates, refusals, and what is left after an error."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import pytest

from tests.publishing.conftest import Node, lookup_model
from tests.publishing.reader import PublishedSite
from tests.toys import write_corpus
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.data import Document
from vocable.errors import ArgumentError, ModelError, VectorsError
from vocable.publishing.files import DATA, name_of
from vocable.publishing.manifest import MANIFEST, read_manifest
from vocable.publishing.publication import page_files, publish
from vocable.publishing.tokenizer import TOKENIZER_SCRIPTS


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each file with its identity and content."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes()) for path in paths}


def test_the_files_are_named_by_their_content_and_all_are_named(site: Path, rows: list[Document]) -> None:
    found, opened = files_of(site), PublishedSite(site)
    manifest = opened.manifest
    for path, (_, content) in found.items():
        if path.startswith(DATA):
            assert path == f"{DATA}/{name_of(content)}.bin"
        elif path != MANIFEST:
            assert manifest.page[path] == name_of(content)
    named = {name for table in opened.directory.tables for name in table.names} | {
        field.file for field in manifest.fields
    }
    assert {f"{DATA}/{name}.bin" for name in {*named, manifest.directory, manifest.blocks}} == {
        one for one in found if DATA in one
    }
    assert opened.ids == sorted(one.id for one in rows)
    assert b"<h1>Toys &lt;b&gt;&amp; more&lt;/b&gt;</h1>" in found["index.html"][1]


def test_a_repeated_call_writes_only_what_changed(
    indexed: Path, model: str, rows: list[Document], tmp_path: Path
) -> None:
    first = publish(indexed, tmp_path / "site")
    assert (first.documents, first.removed) == (len(rows), 0)
    assert first.written == first.files == len(files_of(tmp_path / "site"))
    (tmp_path / "site" / "CNAME").write_text("example.org")
    before = files_of(tmp_path / "site")
    same = publish(open_index(indexed), tmp_path / "site")
    assert (same.written, same.removed, "(unchanged)" in str(same)) == (0, 0, True)
    assert "looked up in a table: " in str(same)
    assert files_of(tmp_path / "site") == before
    changed = [*rows[:5], rows[5]._replace(text="A marmalade cat."), *rows[6:]]
    index(model, write_corpus(changed, tmp_path / "changed.jsonl"), tmp_path / "index", device="cpu").close()
    other = publish(tmp_path / "index", tmp_path / "site")
    after = files_of(tmp_path / "site")
    assert other.written == sum(one not in before.items() for one in after.items()) > 0
    assert other.removed == len(before.keys() - after.keys())
    assert [before[name] for name in before.keys() & after.keys() if name != MANIFEST] == [
        after[name] for name in before.keys() & after.keys() if name != MANIFEST
    ]
    assert "CNAME" in after
    fresh = publish(tmp_path / "index", tmp_path / "fresh")
    assert {name: content for name, (_, content) in after.items() if name != "CNAME"} == {
        name: content for name, (_, content) in files_of(tmp_path / "fresh").items()
    }
    assert fresh.files == other.files


def test_a_damaged_site_is_mended(indexed: Path, tmp_path: Path) -> None:
    publish(indexed, tmp_path / "site")
    before = {name: content for name, (_, content) in files_of(tmp_path / "site").items()}
    data = sorted((tmp_path / "site" / DATA).iterdir())
    data[0].unlink()
    data[1].write_bytes(b"")
    data[2].write_bytes(bytes(len(data[2].read_bytes())))
    (tmp_path / "site" / MANIFEST).write_bytes(before[MANIFEST][:-10])
    (tmp_path / "site" / "style.css").unlink()
    with pytest.raises(VectorsError, match=MANIFEST):
        read_manifest(tmp_path / "site")
    assert publish(indexed, tmp_path / "site").written == 5
    assert {name: content for name, (_, content) in files_of(tmp_path / "site").items()} == before


def test_files_that_no_publication_wrote_stay(indexed: Path, tmp_path: Path) -> None:
    """Files of an earlier publication go, also those that a killed call left, which no manifest names."""
    site = tmp_path / "site"
    publish(indexed, site)
    (site / "encoder").mkdir()
    foreign = [f"{DATA}/x.bin", f"{DATA}/0fa0e0e6-3.bin", f"{DATA}/00000000-5.bin", "encoder/mine.js", "mine/y.bin"]
    for name in foreign:
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text("mine, not of the site")
    (site / DATA / f"{name_of(b'left by a kill')}.bin").write_bytes(b"left by a kill")
    assert publish(indexed, site).removed == 1
    assert {(site / name).read_text() for name in foreign} == {"mine, not of the site"}


@pytest.mark.parametrize("name", [DATA, "style.css", MANIFEST])
def test_a_link_in_a_site_is_refused(indexed: Path, tmp_path: Path, name: str) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    publish(indexed, site, title="Old")
    (site / "style.css").write_text("changed")
    (site / name).rename(elsewhere)
    before = files_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()
    (site / name).symlink_to(elsewhere)
    with pytest.raises(VectorsError, match=name):
        publish(indexed, site, title="New")
    assert (files_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()) == before


@pytest.mark.parametrize("title", ["a $COMPILED b", "$TITLE", "$TITLE$COMPILED", "$ & \\1 $COMPILED"])
def test_a_title_is_shown_as_it_is_written(title: str) -> None:
    page = page_files(title, b"", {"encoder/x.js": b""}, TOKENIZER_SCRIPTS["WordPiece"])["index.html"].decode()
    assert page.count(f"<h1>{escape(title)}</h1>") == page.count(f"<title>{escape(title)}</title>") == 1
    assert page.count("'wasm-unsafe-eval'") == 1


def test_another_folder_is_left_alone(indexed: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "mine.txt").write_text("mine")
    with pytest.raises(ArgumentError):
        publish(indexed, tmp_path / "site")
    assert [*files_of(tmp_path)] == ["site/mine.txt"]


def test_an_error_leaves_the_site_as_it_was(indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    publish(indexed, tmp_path / "site")
    before = files_of(tmp_path)
    monkeypatch.setattr("vocable.publishing.publication.write_documents", fail)
    for output in ("site", "new"):
        with pytest.raises(OSError, match="space"):
            publish(indexed, tmp_path / output, title="Other")
        assert files_of(tmp_path) == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


def test_queries_that_need_an_encoder_are_refused(backbones: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    index(str(backbones["bert"]), corpus, tmp_path / "index", device="cpu").close()
    with pytest.raises(ModelError):
        publish(tmp_path / "index", tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_the_built_in_models_have_the_same_site(tmp_path: Path) -> None:
    texts = ["A fox jumps over a lazy dog.", "Sparse vectors of a librarian", "Owls hoot at night."]
    corpus = write_corpus([Document(str(i), text) for i, text in enumerate(texts)], tmp_path / "corpus.jsonl")
    contents = []
    for model in ("vocable-mini", "vocable-mini-doc"):
        index(model, corpus, tmp_path / model, device="cpu").close()
        publish(tmp_path / model, tmp_path / f"{model}-site")
        found = files_of(tmp_path / f"{model}-site")
        manifest = json.loads(found.pop(MANIFEST)[1])["collection"]
        assert manifest.pop("model") == model
        contents.append((manifest, {name: content for name, (_, content) in found.items()}))
    assert contents[0] == contents[1]
    assert PublishedSite(tmp_path / "vocable-mini-site").search(["night birds"]).hits(0)[0][0] == "2"


def test_passages_and_other_tokenizers_are_refused(
    backbones: dict[str, Path], model: str, corpus: Path, toy_texts: list[str], tmp_path: Path
) -> None:
    index(model, corpus, tmp_path / "passages", long_documents="passages", device="cpu").close()
    with pytest.raises(ArgumentError):
        publish(tmp_path / "passages", tmp_path / "site")
    other = lookup_model(backbones["albert"], toy_texts, tmp_path / "model")
    index(other, corpus, tmp_path / "index", device="cpu").close()
    with pytest.raises(ModelError):
        publish(tmp_path / "index", tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_model_with_byte_level_bpe_is_published(byte_level_site: Path, toy_texts: list[str], run_node: Node) -> None:
    """Node's hits of the published files are Python's, and its scores."""
    script = """
    const { Collection } = await page("collection.js"), found = [];
    const collection = await Collection.open(new URL(given.address));
    for (const text of given.texts) found.push((await collection.search(text)).map(({ id, score }) => [id, score]));
    return found;
    """
    given = {"address": f"file://{byte_level_site}/", "texts": toy_texts[:20]}
    ranking = PublishedSite(byte_level_site).search(toy_texts[:20])
    found = run_node(script, given, model="BPE")
    assert [[tuple(hit) for hit in hits] for hits in found] == [ranking.hits(row) for row in range(20)]
    assert all(found)


def test_copies_facets_and_unknown_words_of_a_page(tmp_path: Path, run_node: Node) -> None:
    texts = [
        "A fox jumps over a dog.",
        "Owls hoot at night.",
        " A fox  jumps\nover a dog.",
        "A fox sleeps.",
        "Owls hoot at night.",
    ]
    files = ["a/x.md", "a/y.md", "b/x.md", "b/z.md", "b/y.md"]
    documents = [Document(f"d{row}", text, fields={"file": files[row]}) for row, text in enumerate(texts)]
    index("vocable-mini-doc", write_corpus(documents, tmp_path / "corpus.jsonl"), tmp_path / "index").close()
    publish(tmp_path / "index", tmp_path / "site")
    script = """
    const { Collection } = await page("collection.js"), found = {};
    const collection = await Collection.open(new URL(given));
    for (const k of [2, 10]) {
      const hits = await collection.search("fox owls", { k, merged: true });
      found[k] = hits.map(({ id, copies, copied }) => [id, copies.map((one) => one.id), copied]);
    }
    found.unmerged = (await collection.search("fox owls")).map(({ id }) => id).sort();
    found.facets = await collection.facets("fox");
    found.unknown = [];
    const texts = ["fox xqzzk", "xqzzk Xqzzk vbnq", "foxes of the night", "", "東京 xqzzk", "東 fox", "how does XQZZK"];
    for (const text of texts) {
      found.unknown.push(await collection.unknown(text));
    }
    return found;
    """
    found = run_node(script, f"file://{tmp_path / 'site'}/", model="WordPiece")
    assert found["unmerged"] == ["d0", "d1", "d2", "d3", "d4"]
    assert sorted(found["10"]) == [["d0", ["d2"], 1], ["d1", ["d4"], 1], ["d3", [], 0]]
    assert len(found["2"]) == 2
    assert found["facets"] == {"counts": [[2, 1]], "hits": 3}  # b/ has d2 and d3, a/ has d0
    assert found["unknown"] == [
        {"words": ["xqzzk"], "guesses": False},
        {"words": ["xqzzk", "Xqzzk", "vbnq"], "guesses": True},
        {"words": [], "guesses": False},
        {"words": [], "guesses": False},
        {"words": ["東京", "xqzzk"], "guesses": True},
        {"words": [], "guesses": False},
        {"words": ["XQZZK"], "guesses": True},
    ]


def test_sections_of_a_page_are_one_hit_of_the_published_search(tmp_path: Path, run_node: Node) -> None:
    texts = ["fox fox fox", "fox fox owl", "A fox sleeps in a den.", "A fox and an owl in a den.", "fox fox fox fox"]
    texts += ["The fox of a tale.", "A night without owls.", " The fox of\na  tale."]
    files = ["a.md", "a.md", "b.md", "a.md", "a.md", "c.md", "b.md", "d.md"]
    documents = [
        Document(f"{file}#{row}", text, f"Part {row}", {"file": file, "url": f"https://example.org/{file}#{row}"})
        for row, (file, text) in enumerate(zip(files, texts, strict=True))
    ]
    documents[7] = documents[7]._replace(title="Part 5")  # a copy of row 5, on another page
    index("vocable-mini-doc", write_corpus(documents, tmp_path / "corpus.jsonl"), tmp_path / "index").close()
    publish(tmp_path / "index", tmp_path / "site")
    script = """
    const { Collection } = await page("collection.js");
    const collection = await Collection.open(new URL(given)), found = {};
    for (const k of [1, 2, 10]) {
      const hits = await collection.search("fox owl", { k, merged: true });
      found[k] = hits.map(({ id, sections, copies }) =>
        [[id, ...sections.map((one) => one.id)], copies.map((one) => one.id)]);
      found.section = hits[0].sections[0];
    }
    found.flat = (await collection.search("fox owl", { k: 100 })).map(({ id }) => id);
    return found;
    """
    found = run_node(script, f"file://{tmp_path / 'site'}/", model="WordPiece")
    copied = ["c.md#5", "d.md#7"]
    ranked = [name for name in found["flat"] if name != max(copied, key=found["flat"].index)]  # the worse copy
    for k in (1, 2, 10):
        pages: dict[str, list[str]] = {}
        for name in ranked:
            if name[0] not in pages and len(pages) == k:
                break
            pages.setdefault(name[0], []).append(name)
        assert [ids for ids, _ in found[str(k)]] == [ids[:4] for ids in pages.values()]
    named = [(ids[0], *copies) for ids, copies in found["10"] if copies]
    assert named == [tuple(sorted(copied, key=found["flat"].index))]
    assert {"id", "title", "url"} <= found["section"].keys()
