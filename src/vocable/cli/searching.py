"""search and explain: what is found, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vocable.cli.options import Json, read_text
from vocable.cli.output import counted, print_json, print_table
from vocable.errors import ArgumentError
from vocable.tables import WIDTH, shortened

if TYPE_CHECKING:
    from vocable.data import Query

BATCH = 256  # queries that are encoded together

Wacky = Annotated[
    Path | None, typer.Option(metavar="SCORES", help="Mark the wacky terms: scores.parquet of vocable wackiness.")
]
WackyShare = Annotated[float | None, typer.Option(help="Which share of the scored terms is wacky, 0.1 by default.")]


def search(
    index: Annotated[Path, typer.Argument(help="A folder that vocable index made.")],
    query: Annotated[
        list[str] | None, typer.Argument(help="Queries, in quotes if of several words; - reads one a line from stdin.")
    ] = None,
    queries: Annotated[str | None, typer.Option(metavar="PLACE", help="Read the queries from a place.")] = None,
    k: Annotated[int, typer.Option("-k", help="Results of a query.")] = 10,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Fuse with BM25 (needs index --bm25).")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the matched terms of every hit.")] = False,
    wacky: Wacky = None,
    wacky_share: WackyShare = None,
    min_match: Annotated[float, typer.Option(help="Share of a query's terms that a hit must have.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Keep only so many terms of a query, the heaviest.")] = None,
    min_weight: Annotated[float, typer.Option(help="Drop terms of a query that are lighter than this.")] = 0.0,
    mass: Annotated[
        float | None, typer.Option(help="Keep the fewest terms with this share of a query's weight.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="With --queries: write a TREC run and print no hits.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a query, a line each.")] = False,
) -> None:
    """Search an index.

    Example: vocable search python-docs "copy a file" --explain
    """
    if (queries is None) == (not query):
        raise ArgumentError("give queries, - for stdin, or --queries PLACE: one of the three")
    if run is not None and (queries is None or explain or as_json):
        raise ArgumentError("--run goes with --queries and without --explain and --json")
    if wacky is not None and not explain:
        raise ArgumentError("--wacky marks the terms that --explain shows: give both")
    from vocable.data import read_queries
    from vocable.encoder.terms import terms
    from vocable.search.answers import search as answer
    from vocable.search.collection import open_index

    collection = open_index(index)
    marked = None if wacky is None else _wacky_terms(wacky, wacky_share, terms(collection.loaded_model))
    settings: dict[str, Any] = {"hybrid": hybrid, "explain": explain, "wacky": marked, "minimum_match": min_match}
    settings |= {"top_k": top_k, "min_weight": min_weight, "mass": mass}
    if run is not None and queries is not None:
        found = answer(collection, list(read_queries(queries)), k, run=run, **settings)
        print(f"{run}: {counted(len(found), 'query', 'queries')}")
        return
    # A line of stdin is answered before the next one is read; queries that are all there are encoded together.
    waiting, first = _queries(query, queries), True
    alone = query is not None and len(query) == 1 and query != ["-"]
    while some := list(islice(waiting, 1 if query == ["-"] else BATCH)):
        for one in answer(collection, some, k, **settings):
            if as_json:
                print_json(one.to_json(), indent=None)
            else:
                print(("" if first else "\n") + ("" if alone else f"{shortened(one.query.text, WIDTH)}\n") + str(one))
            first = False
        sys.stdout.flush()


def explain(
    model: Annotated[str, typer.Argument(help="vocable-mini, a folder, or a Hub id.")],
    query: Annotated[str, typer.Argument(help="A query, or @FILE.")],
    document: Annotated[str | None, typer.Argument(help="A document's text, or @FILE.")] = None,
    wacky: Wacky = None,
    wacky_share: WackyShare = None,
    as_json: Json = False,
) -> None:
    """Show which terms make a score.

    Without a document: the terms that a query becomes.

    Example: vocable explain vocable-mini "fast car" "A quick automobile"
    """
    from vocable.encoder.load import load
    from vocable.encoder.terms import terms
    from vocable.search.explain import Expansion, Explanation, expansion_of_text, explain_texts

    texts = [read_text(text) for text in (query, document) if text is not None]
    encoder = load(model)
    marked = _wacky_terms(wacky, wacky_share, terms(encoder))
    found: Explanation | Expansion = (
        explain_texts(encoder, texts[0], texts[1], marked)
        if document is not None
        else expansion_of_text(encoder, texts[0], role="query", wacky=marked)
    )
    if as_json:
        print_json(found.to_json())
    elif isinstance(found, Explanation) and not found.matches:
        print("score 0: no shared term")
    else:
        print_table(found.table())


def _wacky_terms(scores: Path | None, share: float | None, names: Sequence[str]) -> frozenset[str] | None:
    """What --wacky and --wacky-share ask for; None where nobody asked."""
    if scores is None:
        if share is not None:
            raise ArgumentError("--wacky-share is of the scores in --wacky FILE: give both")
        return None
    from vocable.analysis.removal import SHARE, read_wacky_terms

    return read_wacky_terms(scores, names, SHARE if share is None else share)


def _queries(arguments: list[str] | None, place: str | None) -> Iterator[Query]:
    from vocable.data import Query, read_queries

    if place is not None:
        yield from read_queries(place)
    elif arguments == ["-"]:
        lines = (line.strip() for line in sys.stdin)
        yield from (Query(str(number), line) for number, line in enumerate(lines, start=1) if line)
    else:
        yield from (Query(str(number), text) for number, text in enumerate(arguments or [], start=1))
