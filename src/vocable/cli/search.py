"""Commands that index, search and evaluate."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.util import LazyLoader, find_spec, module_from_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from typing_extensions import Doc, Unpack

import vocable as vo
from vocable.cli.command import Outcome, command, quoted
from vocable.cli.options import (
    Corpus,
    Model,
    ModelOrIndex,
    Output,
    Place,
    Results,
    SkipBad,
    Vectors,
    Wacky,
    WackyShare,
    keywords,
    read_text,
    wacky_terms,
)
from vocable.core.tables import line_width, shortened
from vocable.engines.protocols import OpenedSearchOptions
from vocable.errors import ArgumentError, ModelError
from vocable.options import Count, Device, Encoding, IndexOptions, Pruning, StandingOptions

if TYPE_CHECKING:
    from vocable.data import Query

PLACES = "A folder, exact:FOLDER for an index that cannot change, or an engine's address (docs/search.md)."
BATCH = 256  # queries that are encoded together
# SciPy copies all names of NumPy, and so imports parts that NumPy itself imports only when they are used. A search
# needs none of these parts, and importing them would take a twentieth of its time.
LEFT_OUT_OF_NUMPY = ("numpy.f2py", "numpy.ma", "numpy.testing")


@command("Search", resumable=True)
def index(
    model: Annotated[str, typer.Argument(help="vocable-mini, a folder, a Hub id, or output of vocable encode.")],
    corpus: Corpus,
    output: Annotated[str, typer.Option("-o", "--output", metavar="PLACE", help=PLACES)],
    dense: Annotated[
        str | None, Doc("Also encode with this model of sentence-transformers; by default, MODEL's own dense vectors.")
    ] = None,
    no_dense: Annotated[bool, Doc("Leave out the dense vectors of MODEL.")] = False,
    vectors: Annotated[
        Sequence[str] | None, typer.Option(metavar="VECTORS", help="Further shards of vocable encode.")
    ] = None,
    engine_options: Annotated[
        str | None, Doc("Options of the engine, as weight_bits=8 of exact:FOLDER (docs/engines.md).")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Web address of a corpus that is a folder: documents get the field url."),
    ] = None,
    replace: Annotated[
        bool, Doc("On a server: build a new collection while searches use the old, then swap them.")
    ] = False,
    skip_bad: SkipBad = 0,
    **options: Unpack[IndexOptions],
) -> Outcome:
    """Encode a corpus and make it searchable.

    An interrupted run resumes when repeated.

    Example: vocable index vocable-mini pydocs: -o python-docs --bm25
    """
    indexed = vo.index(
        [model, *vectors] if vectors else model,
        corpus,
        output,
        dense=dense,
        no_dense=no_dense,
        engine_options=engine_options,
        base_url=base_url,
        replace=replace,
        skip_bad=skip_bad,
        **options,
    )
    hybrid = " --hybrid" if len(indexed.spaces) > 1 else ""
    return Outcome(indexed, [output], f'vocable search {quoted(output)} "your question"{hybrid}', indexed.was_there)


@command("Search")
def add(
    index: Place,
    corpus: Corpus,
    replace: Annotated[bool, Doc("Delete all documents that the corpus does not have.")] = False,
    device: Device = None,
    skip_bad: SkipBad = 0,
) -> Outcome:
    """Add documents, replacing any with the same ids.

    An interrupted run resumes when repeated: unchanged documents are kept.

    Example: vocable add my-index more-documents.jsonl
    """
    return Outcome(vo.add(index, corpus, replace=replace, device=device, skip_bad=skip_bad))


@command("Search")
def delete(
    index: Place,
    ids: Annotated[
        Sequence[str], typer.Argument(metavar="ID", help="Ids of documents; - reads one per line from stdin.")
    ],
) -> Outcome:
    """Delete documents of an index.

    Example: vocable delete my-index doc-17 doc-18
    """
    if "-" in ids:
        from vocable.data.read import typed_ids

        ids = [*(identifier for identifier in ids if identifier != "-"), *typed_ids()]
    return Outcome(vo.delete(index, ids))


class _Shown(NamedTuple):
    """An answer, with its query as a heading if there are several queries."""

    heading: str
    answer: Any

    def __str__(self) -> str:
        return f"{self.heading}{self.answer}"

    def to_json(self) -> object:
        return self.answer.to_json()


class _RunSummary(NamedTuple):
    """The number of queries in a TREC run."""

    queries: int

    def __str__(self) -> str:
        return f"{self.queries:,} queries"

    def to_json(self) -> dict[str, int]:
        return self._asdict()


@command("Search", reads=True)
def search(
    index: Annotated[
        str, typer.Argument(help="A folder made by vocable index, another place of an index, or http://HOST:PORT.")
    ],
    query: Annotated[
        Sequence[str] | None,
        typer.Argument(help="Queries, each in quotes if of several words; - reads one per line from stdin."),
    ] = None,
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Read queries from this source.")] = None,
    k: Results = 10,
    explain: Annotated[bool, Doc("Show which terms make the score of each hit.")] = False,
    wacky: Wacky = None,
    wacky_share: WackyShare = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --queries: write a TREC run, print no hits.")
    ] = None,
    allow_changed_model: Annotated[bool, Doc("Search even if the model has changed since it made the index.")] = False,
    device: Device = None,
    **options: Unpack[OpenedSearchOptions],
) -> Outcome:
    """Search an index, or a service by its address.

    With --json, each answer is one object on a line.

    Example: vocable search python-docs "copy a file" --explain
    """
    engine_options = options.pop("engine_options", None)
    like = options.get("like")
    if like and (queries or query):
        raise ArgumentError("--like takes the place of a query: give one of them")
    if sum(map(bool, (queries, query, like))) != 1:
        raise ArgumentError("give queries, - for stdin, or --queries SOURCE: one of the three, or --like ID")
    if wacky is not None and not explain:
        raise ArgumentError("--wacky marks the terms that --explain shows: give both")
    if run is not None and (queries is None or explain):
        raise ArgumentError("--run goes with --queries and without --explain")
    if not Path(index).exists() and query and Path(query[-1], "settings.json").exists():
        raise ArgumentError(f"the index {query[-1]} comes first, then the queries")
    records = _queries(query or [], queries, like)
    _load_when_used(*LEFT_OUT_OF_NUMPY)
    several = queries is not None or len(query or []) > 1 or query == ["-"]
    if index.startswith(("http://", "https://")):
        from vocable.service.client import search_service

        local: dict[str, object] = {"wacky": wacky, "wacky_share": wacky_share, "run": run, "device": device}
        local |= {"allow_changed_model": allow_changed_model, "engine_options": engine_options}
        return Outcome(_shown(search_service(index, records, k=k, explain=explain, **options, **local), several))
    from vocable.collection.records import Answer

    if run is not None:
        from vocable.core.storage import check_file

        check_file(run)
    opened = vo.open_index(index, engine_options=engine_options, allow_changed_model=allow_changed_model, device=device)
    marked = wacky_terms(wacky, wacky_share, opened.models.loaded) if wacky or wacky_share else None
    if run is not None:  # all queries together, since a run is a single file
        return Outcome(_RunSummary(len(vo.search(opened, list(records), k, run=run, **options))), [run])

    def answers() -> Iterator[Answer]:
        size = 1 if query == ["-"] else BATCH  # answer a line of stdin before reading the next line
        while batch := list(islice(records, size)):
            if batch[0].text:
                yield from vo.search(opened, None if like else batch, k, explain=explain, wacky=marked, **options)
            else:  # a blank line of stdin is alone in its batch
                yield Answer(batch[0], ())

    return Outcome(_shown(answers(), several))


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


def _shown(answers: Iterator[Any], several: bool) -> Iterator[_Shown]:
    for number, answer in enumerate(answers):
        heading = f"{shortened(answer.query.text, line_width())}\n" if several else ""
        yield _Shown(("\n" if number else "") + heading, answer)


@command("Search")
def explain(
    model: ModelOrIndex,
    query: Annotated[str, typer.Argument(help="A query, or @FILE.")],
    document: Annotated[
        str | None, typer.Argument(help="The text of a document, or @FILE; of an index, the id of a document.")
    ] = None,
    wacky: Wacky = None,
    wacky_share: WackyShare = None,
    k: Annotated[
        Count | None, typer.Option("-k", "--k", help="Results of the search of an index, 10 by default.")
    ] = None,
    allow_changed_model: Annotated[bool, Doc("Explain even if the model has changed since it made the index.")] = False,
    device: Device = None,
    **options: Unpack[StandingOptions],
) -> Outcome:
    """Show which terms make a score or a rank.

    Without a document: the terms that the model gives the query. With an
    index: the terms that a search uses, IDF included. With the id of a
    document as well: its rank, or why it is no hit.

    Example: vocable explain vocable-mini "fast car" "A quick automobile"
    """
    from vocable.encoding.load import load_encoder
    from vocable.engines.protocols import holds_index

    query = read_text(query)
    if holds_index(model):
        opened = vo.open_index(model, allow_changed_model=allow_changed_model, device=device)
        marked = wacky_terms(wacky, wacky_share, opened.models.loaded) if wacky or wacky_share else None
        return Outcome(vo.explain(opened, query, document, wacky=marked, k=k, **options))
    if allow_changed_model:
        raise ArgumentError("--allow-changed-model goes with an index")
    document = None if document is None else read_text(document)
    try:
        loaded = load_encoder(model, device)
    except ModelError as error:
        if Path(model).exists():
            raise
        raise ModelError(f"{error}; there is no index either") from error
    marked = wacky_terms(wacky, wacky_share, loaded)
    return Outcome(vo.explain(loaded, query, document, wacky=marked, k=k, **options))


@command("Search", resumable=True)
def encode(
    model: Model,
    texts: Corpus,
    output: Output,
    role: Annotated[Literal["query", "document"], Doc("Encode as queries or as documents.")] = "document",
    shards: Annotated[
        Count | None, Doc("Cut the corpus into this many shards, which any number of processes can encode.")
    ] = None,
    shard: Annotated[Count | None, Doc("Encode only this shard, counted from 1.")] = None,
    workers: Annotated[Count, Doc("Number of processes on this machine that encode shards.")] = 1,
    scheduler: Annotated[
        str | None, Doc("Address of a Dask scheduler whose workers encode the shards, as dask://host:8786.")
    ] = None,
    no_dense: Annotated[bool, Doc("Leave out the dense vectors of MODEL.")] = False,
    skip_bad: SkipBad = 0,
    **options: Unpack[Encoding],
) -> Outcome:
    """Encode a corpus into Parquet files of vectors.

    An interrupted run resumes when repeated.

    Example: vocable encode vocable-mini corpus.jsonl -o vectors
    """
    encoded = vo.encode(**keywords(locals()))
    complete = role == "document" and shard is None
    return Outcome(encoded, [output], f"vocable index {quoted(output)} CORPUS -o INDEX" if complete else "")


@command("Search", reads=True)
def prune(
    vectors: Vectors,
    output: Output,
    wacky: Annotated[
        Path | None,
        typer.Option(metavar="SCORES", help="Remove the wackiest expansions, by the scores of measure-wackiness."),
    ] = None,
    wackiest: Annotated[Count | None, Doc("With --wacky: number of terms to remove.")] = None,
    texts: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="With --wacky: the encoded texts, whose own terms stay.")
    ] = None,
    model: Annotated[str | None, Doc("With --wacky: the model that encoded the texts, if it has moved.")] = None,
    **options: Unpack[Pruning],
) -> Outcome:
    """Keep only the largest weights of stored vectors.

    A term stays if it is within every limit. With --wacky, it must also occur
    in the text, or not be among the wackiest.

    Example: vocable prune vectors -o small --max-terms 20
    """
    then = None
    if wacky is not None:
        if wackiest is None or texts is None:
            raise ArgumentError("--wacky needs --wackiest N and --texts SOURCE")
        from vocable.wackiness.measure import WackyPruner

        then = WackyPruner(list(vectors), wacky, wackiest=wackiest, texts=texts, model=model)
    elif any(value is not None for value in (wackiest, texts, model)):
        raise ArgumentError("--wackiest, --texts and --model go with --wacky")
    elif not any(options.values()):
        raise ArgumentError("give --max-terms, --min-weight, --mass or --wacky")
    return Outcome(vo.prune(list(vectors), output=output, then=then, **options), [output])
