"""Commands that index, search, serve and publish."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import LazyLoader, find_spec, module_from_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import vocable as vo
from vocable.cli.command import Command, Outcome, check_named_model
from vocable.cli.inputs import read_text, wacky_terms
from vocable.cli.output import quoted
from vocable.cli.verbs import doc
from vocable.core.folders import COMMIT
from vocable.core.tables import line_width, shortened
from vocable.engines.protocols import holds_index
from vocable.errors import ArgumentError, ModelError
from vocable.options import Count, Device, WackyShare

if TYPE_CHECKING:
    from vocable.data import Query

BATCH = 256  # queries that are encoded together
# SciPy copies all names of NumPy, and so imports parts that NumPy itself imports only when they are used. A search
# needs none of these parts, and importing them would take a tenth of a second.
LEFT_OUT_OF_NUMPY = ("numpy.f2py", "numpy.ma", "numpy.polynomial", "numpy.testing")
OPENING_ARGUMENTS = ("engine_options", "allow_changed_model", "device")  # arguments of `vocable.open_index`
WACKY = {
    "wacky": (Path | None, "Mark the wacky terms, by the scores of vocable measure-wackiness."),
    "wacky_share": (WackyShare, "Share of the scored terms that counts as wacky."),
}


def _index(model: str, vectors: Sequence[str] = (), **given: Any) -> Outcome:
    if "output" not in given:
        raise ArgumentError("output is missing: name the folder of the index, such as -o my-index")
    indexed = vo.index([model, *vectors] if vectors else model, **given)
    following = f'vocable search {quoted(given["output"])} "your question"'
    return Outcome(indexed, following, indexed.was_there)


def _add(index: str, corpus: str, watch: bool = False, **given: Any) -> Outcome:
    if not watch:
        return Outcome(vo.add(index, corpus, **given))
    if given.keys() - {"device"}:
        raise ArgumentError(
            "--watch deletes what is gone and leaves out what cannot be read: give only --device with it"
        )
    from vocable.collection.watching import follow

    return Outcome(follow(vo.open_index(index, **given), corpus))


def _delete(index: str, ids: list[str]) -> Outcome:
    if "-" in ids:
        from vocable.data.read import typed_ids

        ids = [*(identifier for identifier in ids if identifier != "-"), *typed_ids()]
    return Outcome(vo.delete(index, ids))


class _Shown(NamedTuple):
    """An answer, with its query as a heading if there are several queries, and with whole texts if it is `full`."""

    heading: str
    answer: Any
    full: bool

    def __str__(self) -> str:
        return f"{self.heading}{self.answer.printed(self.full)}"

    def to_json(self) -> object:
        return self.answer.to_json()


class _RunSummary(NamedTuple):
    """The number of queries in a TREC run."""

    queries: int

    def __str__(self) -> str:
        return f"{self.queries:,} queries"

    def to_json(self) -> dict[str, int]:
        return self._asdict()


def _search(
    index: list[str],
    query: Sequence[str] = (),
    queries: str | None = None,
    *,
    explain: bool = False,
    wacky: Path | None = None,
    wacky_share: float | None = None,
    run: Path | None = None,
    full: bool = False,
    as_json: bool = False,
    **options: Any,
) -> Outcome:
    options["sections"] = as_json or run is not None or options.get("sections", False)
    # Refuse options that exclude each other.
    like = options.get("like")
    index, query = _indexes(index, query, bool(queries or like))
    if like and (queries or query):
        raise ArgumentError("--like takes the place of a query: give one of them")
    if sum(map(bool, (queries, query, like))) != 1:
        raise ArgumentError("give queries, - for stdin, or --queries SOURCE: one of the three, or --like ID")
    if wacky is not None and not explain:
        raise ArgumentError("--wacky marks the terms that --explain shows: give both")
    if run is not None and (queries is None or explain):
        raise ArgumentError("--run goes with --queries and without --explain")
    # Queries are read one by one, so that lines of stdin are answered as they come.
    records = _queries(query, queries, like)
    if queries is not None:
        options.setdefault("plain", True)  # queries of a source were not typed for this syntax
    _load_when_used(*LEFT_OUT_OF_NUMPY)
    several = queries is not None or len(query) > 1 or query == ["-"]
    # A URL: the service has index and model.
    if len(index) == 1 and index[0].startswith(("http://", "https://")):
        from vocable.service.client import search_service

        local: dict[str, Any] = {"wacky": wacky, "wacky_share": wacky_share, "run": run}
        answers_of_service = search_service(index[0], records, explain=explain, **options, **local)
        return Outcome(_shown(answers_of_service, several, full))
    from vocable.collection.records import Answer

    if run is not None:
        from vocable.core.storage import check_file

        check_file(run)
    # Open the index, and search in batches.
    opening = {name: options.pop(name) for name in OPENING_ARGUMENTS if name in options}
    opened = vo.open_index(index[0] if len(index) == 1 else index, **opening)
    marked = wacky_terms(wacky, wacky_share, opened.models.loaded) if wacky or wacky_share else None
    if run is not None:  # all queries together, since a run is a single file
        return Outcome(_RunSummary(len(vo.search(opened, list(records), run=run, **options))))

    def answers() -> Iterator[Answer]:
        size = 1 if query == ["-"] else BATCH  # answer a line of stdin before reading the next line
        while batch := list(islice(records, size)):
            if batch[0].text:
                yield from vo.search(opened, None if like else batch, explain=explain, wacky=marked, **options)
            else:  # a blank line of stdin is alone in its batch
                yield Answer(batch[0], ())

    return Outcome(_shown(answers(), several, full))


def _indexes(index: list[str], words: Sequence[str], asked: bool) -> tuple[list[str], Sequence[str]]:
    """Return the indexes and the queries; if the queries are `asked` otherwise, all words are indexes.

    Raises `ArgumentError` for a folder of an index among the queries.
    """
    if len(index) > 1 or not words:
        return index, words
    if asked and all(map(holds_index, words)):
        return [*index, *words], ()
    if named := [word for word in words if os.path.isfile(os.path.join(word, COMMIT))]:
        if holds_index(index[0]):
            raise ArgumentError(f"{named[0]} is an index: several indexes need -- before the query")
        raise ArgumentError(f"the index {named[-1]} comes first, then the queries")
    return index, words


def _load_when_used(*modules: str) -> None:
    """Delay the import of modules until one of their attributes is used."""
    for name in modules:
        package, _, part = name.rpartition(".")
        spec = None if name in sys.modules else find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = loader = LazyLoader(spec.loader)
            module = sys.modules[name] = module_from_spec(spec)
            loader.exec_module(module)
            setattr(sys.modules[package], part, module)


def _queries(texts: Sequence[str], source: str | None, like: str | None) -> Iterator[Query]:
    from vocable.data import Query, read_queries
    from vocable.data.read import typed_queries

    if source is not None:
        return read_queries(source)
    if texts == ["-"]:
        return typed_queries()
    if like is not None:
        return iter([Query(like, f"like {like}")])
    return (Query(str(number), text) for number, text in enumerate(texts, start=1))


def _shown(answers: Iterator[Any], several: bool, full: bool) -> Iterator[_Shown | str]:
    """Yield the answers, and a line that says which kinds of vectors ranked their hits."""
    from vocable.collection.records import ranked_by

    weights = None
    for number, answer in enumerate(answers):
        heading = f"{shortened(answer.query.text, line_width())}\n" if several else ""
        yield _Shown(("\n" if number else "") + heading, answer, full)
        weights = answer.weights or weights
    if weights:
        yield f"\n{ranked_by(weights)}"


def _explain(
    model: str,
    query: str,
    document: str | None = None,
    *,
    wacky: Path | None = None,
    wacky_share: float | None = None,
    allow_changed_model: bool = False,
    device: str | None = None,
    **options: Any,
) -> Outcome:
    from vocable.encoding.load import load_encoder

    query = read_text(query)
    if holds_index(model):
        opened = vo.open_index(model, allow_changed_model=allow_changed_model, device=device)
        marked = wacky_terms(wacky, wacky_share, opened.models.loaded) if wacky or wacky_share else None
        return Outcome(vo.explain(opened, query, document, wacky=marked, **options))
    if allow_changed_model:
        raise ArgumentError("--allow-changed-model goes with an index")
    check_named_model(model)
    document = None if document is None else read_text(document)
    # A missing name may be meant as an index or as a model: the message has both.
    try:
        loaded = load_encoder(model, device)
    except ModelError as error:
        if Path(model).exists():
            raise
        raise ModelError(f"{error}; there is no index either") from error
    return Outcome(vo.explain(loaded, query, document, wacky=wacky_terms(wacky, wacky_share, loaded), **options))


def _encode(**given: Any) -> Outcome:
    complete = given.get("role", "document") == "document" and "shard" not in given
    following = f"vocable index {quoted(given['output'])} CORPUS -o INDEX" if complete else ""
    return Outcome(vo.encode(**given), following)


def _prune(
    vectors: list[str],
    output: str,
    *,
    wacky: Path | None = None,
    wackiest: int | None = None,
    texts: str | None = None,
    model: str | None = None,
    **limits: Any,
) -> Outcome:
    then = None
    if wacky is not None:
        if wackiest is None or texts is None:
            raise ArgumentError("--wacky needs --wackiest N and --texts SOURCE")
        from vocable.wackiness.measure import WackyPruner

        then = WackyPruner(vectors, wacky, wackiest=wackiest, texts=texts, model=model)
    elif any(value is not None for value in (wackiest, texts, model)):
        raise ArgumentError("--wackiest, --texts and --model go with --wacky")
    elif not any(limits.values()):
        raise ArgumentError("give --max-terms, --min-weight, --mass or --wacky")
    return Outcome(vo.prune(vectors, output=output, then=then, **limits))


SEARCH_COMMANDS = (
    Command(
        "index",
        "model corpus",
        "vocable-mini pydocs: -o python-docs",
        _index,
        "resumes",
        options={"vectors": (Sequence[str], "Further shards of vocable encode.")},
    ),
    Command(
        "add",
        "index corpus",
        "my-index more-documents.jsonl",
        _add,
        options={"watch": (bool, "Go on, and follow the files of the folder: add what changes, delete what is gone.")},
    ),
    Command("check", "index", "my-index"),
    Command("delete", "index ids...", "my-index doc-17 doc-18", _delete),
    Command("alias", "index name", "opensearch+http://localhost:9200/documents documents-2"),
    Command("drop", "index", "opensearch+http://localhost:9200/documents-1"),
    Command(
        "search",
        "index... query...",
        'python-docs "copy a file" --explain',
        _search,
        "reads formats",
        options={
            "index": (
                Sequence[str],
                "A folder of `vocable index`, another place of an index, or http://HOST:PORT. Several indexes are "
                "searched as one, with -- before the queries.",
            ),
            "query": (Sequence[str], "Queries, in quotes if of several words; - reads lines from stdin."),
            "queries": (str, "Read queries from this source."),
            "full": (bool, "Print whole texts in place of their best parts."),
            **WACKY,
        },
    ),
    Command(
        "explain",
        "model query document",
        'vocable-mini "fast car" "A quick automobile"',
        _explain,
        options={
            **WACKY,
            "allow_changed_model": (bool, "Explain even if the model has changed since it made the index."),
            "device": (Device, doc(Device)),
        },
    ),
    Command(
        "encode",
        "model texts",
        "vocable-mini corpus.jsonl -o vectors",
        _encode,
        "named writes resumes",
        without="name",
        sources="texts",
    ),
    Command(
        "prune",
        "vectors...",
        "vectors -o small --max-terms 20",
        _prune,
        "writes reads",
        options={
            "wacky": (Path, "Remove the wackiest expansions, by the scores of measure-wackiness."),
            "wackiest": (Count, "With `wacky`: number of terms to remove."),
            "texts": (str, "With `wacky`: the encoded texts, whose own terms stay."),
            "model": (str, "With `wacky`: the model that encoded the texts, if it has moved."),
        },
        without="then",
    ),
)


def _publish(**given: Any) -> Outcome:
    following = f"python3 -m http.server --directory {quoted(given['output'])}"
    return Outcome(vo.publish(**given), following, written=())


SERVING_COMMANDS = (
    Command(
        "serve",
        "index...",
        "my-index --port 8000",
        traits="no-json",
        options={"index": (Sequence[str], "Places of indexes; several are searched as one, and cannot change.")},
    ),
    Command("publish", "index", "my-index -o site", _publish),
)
