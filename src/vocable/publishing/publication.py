"""The verb `publish`: write a collection as static files that a browser searches without a server or a model.

Letters: n documents, v terms.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from vocable.collection.collection import Collection, open_index
from vocable.collection.copies import content_of
from vocable.collection.groups import ADDRESS, page_on_site
from vocable.core.links import refuse_link
from vocable.core.progress import track
from vocable.core.storage import (
    ANOTHER,
    force_all_to_disk,
    is_there,
    locked,
    part_of,
    partial_of,
    replacing_folder,
    target_of,
)
from vocable.core.tables import counted
from vocable.data import Document
from vocable.encoding.hub import BUILT_IN_MODEL, BY_LOOKUP
from vocable.encoding.idf import idf
from vocable.encoding.load import load_encoder
from vocable.encoding.protocol import RoleEncoder
from vocable.errors import ArgumentError, ModelError, VectorsError
from vocable.indexes.word_counts import count_words, term_frequency_weights
from vocable.language.languages import NO_LANGUAGE, language_of
from vocable.language.words import counted_words, stems_of
from vocable.options import Count, checked
from vocable.publishing.documents import (
    Shown,
    together,
    write_documents,
    write_fields,
    write_groups,
)
from vocable.publishing.encoder import SCRIPTS, WebRuntime, graph_of, read_runtime, write_encoder
from vocable.publishing.files import DATA, FileTable, SiteFiles, is_site_file, name_of, path_of
from vocable.publishing.manifest import (
    MANIFEST,
    Directory,
    Manifest,
    QueryReading,
    is_manifest,
    manifest_bytes,
    read_manifest,
)
from vocable.publishing.postings import LARGEST_WEIGHT, Terms, rounded, write_postings
from vocable.publishing.tokenizer import TOKENIZER_SCRIPTS, check_tokenizer, describe, write_pieces

PAGE, TOKENIZERS = (Path(__file__).parent / part for part in ("page", "tokenizers"))
PLACEHOLDER = re.compile(rb"\$TITLE|\$COMPILED")  # filled in one pass, since a title may contain a placeholder
SERVICE_PAGE = Path(__file__).parents[1] / "service/page"


def is_readable(language: str) -> bool:
    """Return whether a browser finds the same words as BM25: in all languages but those that need ICU."""
    return not language_of(language).icu


def language_script(language: str) -> bytes:
    """Return the module, which exports `STOP`, `COMMON` and `CODE`.

    Raises:
        ArgumentError: the language needs ICU.
    """
    if not is_readable(language):
        instead = "publish without BM25 (--no-bm25), or index with another --language, as none"
        raise ArgumentError(f"language: a browser cannot find BM25's words of {language}: {instead}")
    spoken = language_of(language)
    sets = {"STOP": spoken.stop, "COMMON": spoken.common}
    lines = [f"export const {n} = new Set({json.dumps(sorted(s), ensure_ascii=False)});" for n, s in sets.items()]
    return "\n".join([*lines, f"export const CODE = {json.dumps(spoken.code)};\n"]).encode()


logger = logging.getLogger(__name__)


class Published(NamedTuple):
    """Counts of a published collection: documents, terms, BM25 words, files, bytes, and changed files."""

    output: str
    documents: int
    terms: int
    words: int
    files: int
    nbytes: int
    written: int
    removed: int
    linked: int  # documents with an address
    encoder: bool  # readers may load the encoder of queries

    def to_json(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        return self._asdict()

    def __str__(self) -> str:
        size = f"{self.nbytes / 1e6:,.1f} MB in {counted(self.files, 'file')}"
        changed = f"{self.written:,} written, {self.removed:,} removed" if self.written + self.removed else "unchanged"
        until = " until a reader loads the encoder" if self.encoder else ": for the model's own, add --encoder"
        unlinked = "" if self.linked else "\nno document has a field url, so no hit is a link: index with --base-url"
        first = f"{self.output}: {counted(self.documents, 'document')}, {size} ({changed})"
        return f"{first}\nqueries are looked up in a table{until}{unlinked}"


@checked
def publish(
    index: str | os.PathLike[str] | Collection,
    output: str | os.PathLike[str],
    *,
    title: str | None = None,
    bm25: bool = True,
    characters: Count = 500,
    encoder: str | os.PathLike[str] | None = None,
) -> Published:
    """Write an index as files that a browser searches.

    Any web server can deliver them, without a program or a model: queries are looked up. The index must be by
    vocable-mini-doc, vocable-mini (vocable-mini-doc looks up its queries) or a model of `vocable make-inference-free`.
    Repeat it after the index has changed: only changed files are written, and only files of earlier calls are removed.

    Args:
        index: place of the index; in Python also the result of `vocable.open_index`.
        output: a new folder, or the folder of an earlier call, which is updated.
        title: heading of the page; by default the heading of the earlier call, or Search.
        bm25: also write the words of the documents, even if the index has no BM25.
        characters: length of the shown text of a document.
        encoder: the npm package onnxruntime-web, a folder or a .tgz: also publish the model's 8-bit ONNX graph, which a
            reader's browser loads if asked to. The index may then be by an exported model: until the graph is loaded, a
            token's weight in a query is its IDF in the documents.

    Raises:
        ArgumentError: something else exists at `output`, the index has passages, a browser cannot find the BM25 words
            of its language, or `encoder` is not onnxruntime-web.
        ModelError: the model's queries need an encoder, a browser cannot read its tokenizer, or `encoder` is given and
            the model has no 8-bit ONNX graph for queries.
        VectorsError: the index is missing, damaged or in use.
    """
    collection = index if isinstance(index, Collection) else open_index(index)
    target = target_of(output)
    try:
        runtime = None if encoder is None else read_runtime(Path(encoder))
        title = _title_of(target) if title is None else title
        current = collection.current()
        # An index that is still being made can be published: its other documents are found by words.
        if (share := current.store.encoded_share) < 1:
            finds = "the site finds the others by their words: publish again when it is made"
            logger.warning("%s: %.0f%% of the documents have vectors so far: %s", current.place, 100 * share, finds)
        publication = _Publication(current, title, bm25, characters, runtime)
        # A new folder is whole or absent; an old one gets the changed files.
        if not is_there(target):
            with replacing_folder(target) as work:
                published = publication.write(work)
            return published._replace(output=os.fspath(output))
        return _updated(publication, target, os.fspath(output))
    finally:
        if collection is not index:
            collection.close()


def _title_of(target: Path) -> str:
    """Return the heading of an earlier call, or "Search"."""
    try:
        return read_manifest(target).title if is_manifest(target / MANIFEST) else "Search"
    except VectorsError:  # this call repairs a damaged manifest
        return "Search"


def _updated(publication: _Publication, target: Path, output: str) -> Published:
    """Update a published collection: add new files, then replace the manifest, and finally remove old files."""
    if not is_manifest(target / MANIFEST):
        raise ArgumentError(f"{output} already exists and is something else: {ANOTHER}")
    with locked(partial_of(target)), part_of(target, Path.mkdir) as part:
        for folder in (DATA, SCRIPTS.name):  # files in these folders are written and removed
            refuse_link(target / folder)
        earlier = _page_names(target)
        published = publication.write(part, target)
        force_all_to_disk(part)
        targets = {path: target / path.relative_to(part) for path in part.rglob("*") if path.is_file()}
        for path in targets.values():
            refuse_link(path)
        for path in sorted(targets, key=lambda path: path.name == MANIFEST):
            targets[path].parent.mkdir(exist_ok=True)
            path.replace(targets[path])
        names = {path_of(target, name) for name in publication.names}
        old = [path for path in (target / DATA).glob("*.bin") if path not in names and is_site_file(path)]
        scripts = earlier - publication.scripts.keys()
        old += [path for path in (target / SCRIPTS.name).glob("*.js") if f"{SCRIPTS.name}/{path.name}" in scripts]
        for path in old:
            path.unlink()
    return published._replace(removed=len(old), output=output)


def _page_names(target: Path) -> set[str]:
    """Return the names of the page's files in the manifest of an earlier call; an empty set if it is damaged."""
    try:
        return set(read_manifest(target).page)
    except VectorsError:
        return set()


class _Publication:
    """A collection to publish; after `write`, `names` has the names of its data files."""

    def __init__(
        self, collection: Collection, title: str, bm25: bool, characters: int, runtime: WebRuntime | None
    ) -> None:
        if not collection.units.are_documents:
            message = "it has passages, which cannot be published: index with long_documents truncate or maxpool"
            raise ArgumentError(f"{collection.place}: {message}")
        self.collection, self.title, self.bm25, self.characters = collection, title, bm25, characters
        self.graph, self.runtime = None if runtime is None else graph_of(collection), runtime
        self.scripts = {} if runtime is None else runtime.scripts
        self.encoder = _encoder(collection, self.graph is not None)
        assert self.encoder.tokenization is not None
        self.language = (
            collection.settings.language if bm25 or is_readable(collection.settings.language) else NO_LANGUAGE
        )
        self.script = language_script(self.language)
        self.tokenizer = self.encoder.tokenization.backend
        check_tokenizer(self.tokenizer, collection.models.name)
        self.names: list[str] = []

    def write(self, folder: Path, previous: Path | None = None) -> Published:
        """Write the files that the folder `previous` of an earlier call does not have."""
        documents, vectors = self._content()
        files = SiteFiles(folder, previous)
        # Write what a search reads: the tokenizer, postings of terms and words, and documents.
        texts = [document.weighed(self.collection.settings.title_weight) for document in documents]
        terms = self._terms(vectors, self._factors(texts, vectors.shape[1]))
        described = describe(files, self.tokenizer, set(terms.names))
        words = _words(texts, self.language, self._vocabulary()) if self.bm25 else None
        directory = Directory(
            described,
            write_pieces(files, self.tokenizer, set(terms.names)),
            write_postings(files, terms),
            FileTable([], []) if words is None else write_postings(files, words),
            write_documents(files, [Shown.of(document, self.characters) for document in documents]),
        )
        # Write what filters and groups hits, and how a query is read.
        settings, fields = self.encoder.settings, write_fields(files, documents)
        copies, pages = (write_groups(files, map(key, documents)) for key in (content_of, page_on_site))
        # A prompt for an encoder is left out: a search without the graph would look for its words.
        prompt = (settings.prompt if self.encoder.looked_up else None) or ""
        query = QueryReading(prompt, settings.max_length, settings.query_idf)
        # `blocks` lists the files that no table names.
        named = {name for table in directory.tables for name in table.names} | {field.file for field in fields}
        blocks = files.add(FileTable([], sorted(files.names.keys() - named)).to_bytes())
        name, nbytes = files.add(directory.to_bytes()), files.nbytes
        graph = write_encoder(files, self.graph, self.runtime) if self.graph and self.runtime else None
        page = page_files(self.title, self.script, self.scripts, TOKENIZER_SCRIPTS[described["model"]["type"]])
        # The manifest is written last: it names files that must be there.
        manifest = Manifest(
            title=self.title,
            documents=len(documents),
            together=together(len(documents)),
            model=self.collection.models.name,
            query=query,
            words=words is not None,
            fields=fields,
            directory=name,
            blocks=blocks,
            nbytes=nbytes,
            page={name: name_of(content) for name, content in page.items()},
            language=self.language,
            encoder=graph,
            copies=copies,
            pages=pages,
            weights=self._weights(),
        )
        others = {**page, MANIFEST: manifest_bytes(manifest)}
        written = files.written + sum(_write(folder, previous, *file) for file in others.items())
        self.names = list(files.names)
        size = files.nbytes + sum(map(len, others.values()))
        return Published(
            output=str(folder),
            documents=len(documents),
            terms=len(terms.names),
            words=0 if words is None else len(words.names),
            files=len(files.names) + len(others),
            nbytes=size,
            written=written,
            removed=0,
            linked=sum(bool(document.fields.get(ADDRESS)) for document in documents),
            encoder=graph is not None,
        )

    def _weights(self) -> dict[str, float]:
        """Return the weights of the index's searches, without dense vectors, which are not published."""
        kept = self.collection.kept_weights or {}
        usual = ["bm25"] if self.collection.searcher.coverage.mostly_lost else ["sparse", "bm25"]
        return {kind: kept[kind] for kind in ("sparse", "bm25") if kind in kept} or dict.fromkeys(usual, 1.0)

    def _content(self) -> tuple[list[Document], csr_array]:
        """Return the n documents, sorted by id, and their vectors [n, v]."""
        ids, size = sorted(self.collection.store.ids()), self.collection.store.about.part
        documents, vectors = list[Document](), list[csr_array]()
        for start in track(range(0, len(ids), size), "publish"):
            page = ids[start : start + size]
            read = self.collection.documents(page)
            documents += [document for document in read if document is not None]
            vectors.append(self.collection.vectors(page))
        if not ids:
            raise ArgumentError(f"{self.collection.place}: there are no documents to publish")
        return documents, csr_array(vstack(vectors, format="csr"))

    def _vocabulary(self) -> list[str]:
        """Return the tokens that can begin a word: a query may have a word that no document has."""
        assert self.encoder.tokenization is not None
        surfaces = self.encoder.tokenization.surfaces()
        return [surface.text for surface in surfaces if surface and surface.initial and surface.kind != "special"]

    def _factors(self, texts: Sequence[str], size: int) -> np.ndarray:
        """Return the weight of each term in a looked-up query, without its IDF, float32 [v].

        Without a table, the factor turns the term's IDF, which a search applies, into the IDF of the token in the n
        texts.
        """
        if self.encoder.looked_up:
            return self.encoder.encode([], [[column] for column in range(size)], None, "right").sparse.diagonal()
        assert self.encoder.tokenization is not None
        counts = np.zeros(size, dtype=np.int64)
        for ids in self.encoder.tokenization.ids(texts):
            counts[np.unique(ids)] += 1
        weights = idf(counts, len(texts)) ** (1 - self.encoder.settings.query_idf)
        weights[self.encoder.model.special_terms] = 0
        return weights

    def _terms(self, vectors: csr_array, factors: np.ndarray) -> Terms:
        """Return the terms of the documents' vectors [n, v] that matter for scores, with their `factors` [v].

        Drop a term whose largest contribution to any score is below half an 8-bit step of the largest contribution
        overall. Without a graph, this drops terms that are never in a query; a graph may give any term a weight.
        """
        columns = vectors.tocsc()
        tops = np.zeros(vectors.shape[1])
        np.maximum.at(tops, np.repeat(np.arange(len(tops)), np.diff(columns.indptr)), columns.data)
        reach = factors if self.graph is None else np.ones_like(factors)
        most = reach * tops * idf(np.diff(columns.indptr), vectors.shape[0]) ** self.encoder.settings.query_idf
        names = self.encoder.model.terms
        kept = np.flatnonzero((tops > 0) & (most > most.max(initial=0) / LARGEST_WEIGHT / 2)).tolist()
        kept.sort(key=lambda column: names[column])
        scales = np.maximum((tops / LARGEST_WEIGHT).astype(np.float32), np.finfo(np.float32).tiny)[kept]
        matrix = csr_array(columns[:, kept])
        multiples = rounded(matrix.data, scales[matrix.indices])
        weights = csr_array((multiples, matrix.indices, matrix.indptr), shape=matrix.shape)
        return Terms([names[column] for column in kept], weights, scales.tolist(), factors[kept].tolist())


def _encoder(collection: Collection, has_graph: bool) -> RoleEncoder:
    """Return the encoder of queries, which must be a table of token weights unless a graph is published."""
    model = collection.models.loaded
    if collection.models.name == BUILT_IN_MODEL:  # both give documents the same vectors
        model = load_encoder(BY_LOOKUP)
    encoder = model.encoder("query")
    if not encoder.looked_up and not has_graph:
        instead = f"publish with --encoder, or index with {BY_LOOKUP} or a model of vocable make-inference-free"
        raise ModelError(f"{collection.place}: queries of {collection.models.name} need its encoder: {instead}")
    return encoder


def _words(texts: Sequence[str], language: str, vocabulary: Sequence[str]) -> Terms:
    """Return the stems of n texts in a language, with their BM25 weights without IDF.

    `Terms.stems` has the words of the texts, and words of the vocabulary whose stem is in the texts.
    """
    spelled = counted_words(texts, language, progress=True)
    stems = stems_of(spelled, language)
    words = [[stems[word] for word in text] for text in spelled]
    names = sorted(set().union(*words))
    columns = {name: column for column, name in enumerate(names)}
    counts = count_words(words, columns)
    lengths = np.array([len(text) for text in words], dtype=np.float64)
    weights = term_frequency_weights(counts, lengths, float(lengths.mean()) or 1.0)
    scales = np.full(len(names), np.float32(1 / LARGEST_WEIGHT))
    multiples = rounded(weights, scales[counts.indices])
    matrix = csr_array((multiples, counts.indices, counts.indptr), shape=counts.shape)
    stems |= stems_of(counted_words(vocabulary, language), language)
    changed = {word: stem for word, stem in stems.items() if word != stem and stem in columns}
    return Terms(names, matrix, scales.tolist(), [1.0] * len(names), changed)


def page_files(title: str, script: bytes, encoder: Mapping[str, bytes], tokenizer: str) -> dict[str, bytes]:
    """Return the files of the page by name.

    `script` is the module of the language, `encoder` has the scripts of an encoder or is empty, and `tokenizer` is the
    name of a file in tokenizers/.
    """
    paths = sorted([*PAGE.glob("*.*"), SERVICE_PAGE / "markdown.js"], key=lambda path: path.name)
    contents = {path.name: path.read_bytes() for path in paths} | {"language.js": script, **encoder}
    contents["tokenizer.js"] = (TOKENIZERS / tokenizer).read_bytes()
    allowed = b" 'wasm-unsafe-eval'" if encoder else b""  # some browsers apply a page's policy to its workers
    values = {b"$TITLE": escape(title).encode(), b"$COMPILED": allowed}
    contents["index.html"] = PLACEHOLDER.sub(lambda match: values[match[0]], contents["index.html"])
    return contents


def _write(folder: Path, previous: Path | None, name: str, content: bytes) -> bool:
    """Write a file unless the folder `previous` has it, and return whether it was written."""
    if previous is not None and (previous / name).is_file() and (previous / name).read_bytes() == content:
        return False
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return True
