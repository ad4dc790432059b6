"""The demonstration: index, search, explain, compare and evaluate on real documents in half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from vocable.cli.output import quoted
from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.collection.records import INDENT, ranked_by
from vocable.core.tables import line_width, shortened
from vocable.data import Document, Qrel, Query, pydocs
from vocable.encoding.dense_models import load_dense_beside
from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, encoding_model
from vocable.engines.protocols import Space
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.plans import Judged
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.retrievers import (
    DatasetRetriever,
    SpaceIndex,
    dense_index,
    judged_queries,
    lexical_index,
    sparse_index,
)
from vocable.evaluation.significance import ComparedEvaluations, compare
from vocable.explanation.explain import expand_text

QUESTIONS = (
    "which elements occur most often",
    "draw several random items without repetition",
    "measure how long a small piece of code takes",
    "compare two files and show the lines that differ",
    "keep a list sorted while inserting",
)
MODULES = (
    *("bisect", "collections", "difflib", "filecmp", "heapq", "itertools", "json", "random", "shutil", "statistics"),
    *("timeit", "zipfile"),
)
EVERY = 3  # of all modules every third known item of the test is used: enough to distinguish systems
MEASURE = "nDCG@10"
MEDIAN_OF = 40  # timed answers
DEFAULT_OUTPUT = "vocable-demo"


def demo(output: str | Path = DEFAULT_OUTPUT, *, whole: bool = False, serve: bool = False) -> None:
    """See it all work, on Python's documentation.

    It indexes, searches, explains and compares with BM25. A second run reuses the index.

    Args:
        output: folder that keeps the indexes.
        whole: take all modules, some minutes, and not the twelve of the default.
        serve: show the index on a page in the browser, until Ctrl-C.
    """
    folder, console = Path(output), Console(width=line_width())
    if serve:
        _serve(folder, console, whole=whole)
        return
    # Each step prints its title, its result and its seconds.
    with _step(console, f"1  Load the built-in model, {BUILT_IN_MODEL}"):
        model = load_encoder(BUILT_IN_MODEL)
        console.print(f"   {len(model.terms):,} output terms; runtime {model.runtime}, {model.dtype}")
    place, modules = _place(folder, whole=whole), "all modules" if whole else ", ".join(MODULES)
    with _step(console, f"2  Encode and index the docstrings of this Python: {modules}"):
        collection = _indexed(place, whole=whole)
        console.print(f"   {len(collection):,} docstrings in {place}")
    with _step(console, "3  Ask five questions"):
        _ask(console, model, collection)
    dataset = known_items(whole=whole)
    with _step(console, f"4  Compare with BM25: find {len(dataset.documents):,} docstrings by their first sentence"):
        systems = compare(_systems(model, dataset, "model"))
        console.print(systems.table())
        for line in changes(systems):
            console.print(f"   {line}")
    _next(folder, console, whole=whole)


def _next(folder: Path, console: Console, *, whole: bool) -> None:
    """Print commands that go on from here."""
    again = "vocable demo" if folder == Path(DEFAULT_OUTPUT) else f"vocable demo -o {quoted(folder)}"
    place = quoted(_place(folder, whole=whole))
    console.print("\n[bold]Next[/bold]")
    for command, what in (
        (f"{again}{' --whole' if whole else ''} --serve", "see it on a page, in a browser"),
        (f'vocable search {place} "your own question" --explain', "search this index"),
        (f"{again} --whole", "the same with all modules, some minutes"),
        (f"vocable index {BUILT_IN_MODEL} my-documents.jsonl -o my-index", "index your own documents"),
        (f"vocable tune {BUILT_IN_MODEL} my-documents.jsonl -o my-model", "tune on them; needs the extra train"),
    ):
        console.print(f"   {command}\n      [dim]{what}[/dim]")


def _place(folder: Path, *, whole: bool) -> Path:
    return folder / ("whole-index" if whole else "index")


def _indexed(place: Path, *, whole: bool) -> Collection:
    """Return the index at a place; make it, or what an interrupted run left to do."""
    return index(BUILT_IN_MODEL, [one for one in pydocs.documents() if whole or _of_modules(one)], place)


def _of_modules(item: Document | pydocs.KnownItem) -> bool:
    return item.id.partition(".")[0] in MODULES


def _serve(folder: Path, console: Console, *, whole: bool) -> None:
    from vocable.service.server import serve

    place = _place(folder, whole=whole)
    _indexed(place, whole=whole).close()
    console.print("The page opens in a browser; if it does not, copy its address. Try a question:")
    for question in QUESTIONS:
        console.print(f"   {question}")
    serve(place, port=0, browser=True)


def known_items(*, whole: bool) -> Dataset:
    """Return known items: queries are first sentences, documents the rest of the docstrings."""
    known = pydocs.known_items()
    items = [item for item in known if item.split == "test"][::EVERY] if whole else [*filter(_of_modules, known)]
    return Dataset(
        "known items",
        [Document(item.id, item.rest) for item in items],
        [Query(f"query:{item.id}", item.sentence) for item in items],
        [Qrel(f"query:{item.id}", item.id, 1) for item in items],
    )


def changes(systems: ComparedEvaluations) -> list[str]:
    """Describe the gain or loss by the model and by each fusion, a sentence for each."""
    parts = "the model", "its fusion with BM25", "the fusion with dense vectors, too,"
    return [_change(part, *pair) for part, pair in zip(parts, pairwise(systems.evaluations), strict=False)]


def _change(part: str, baseline: Evaluation, system: Evaluation) -> str:
    difference = system.values[MEASURE] - baseline.values[MEASURE]
    p = compare([baseline, system]).p_values[0][MEASURE]
    word = "gained" if difference > 0 else "lost" if difference < 0 else "changed nothing:"
    sure = "" if p < 0.05 else ", which may be chance"
    return f"{part} {word} {abs(difference):.3f} {MEASURE} over {baseline.name} (p = {p:.2g}{sure})"


def _ask(console: Console, model: Model, collection: Collection) -> None:
    answers = search(collection, QUESTIONS, 3, explain=True)
    for question, hits, *_ in answers:
        console.print(f"\n   [bold]{escape(question.text)}[/bold]")
        heaviest = expand_text(model, question.text, "query", k=40).terms
        added = [term.term for term in heaviest if not term.in_text]
        console.print(f"   the model added: {escape(', '.join(added[:8]))}")
        for hit in hits:
            console.print(Text.from_ansi(str(hit._replace(explanation=None))), soft_wrap=True)
            matches = hit.explanation.matches[:4] if hit.explanation is not None and hit.rank == 1 else ()
            if matches:
                shares = (f"{match.term} {match.share:.0%}{'' if match.in_query else ' (added)'}" for match in matches)
                reasons = shortened(f"because of {', '.join(shares)}", max(20, line_width() - INDENT))
                console.print(f"{' ' * INDENT}{escape(reasons)}", style="dim")
    console.print(f"\n   {ranked_by(answers.plan.weights)}")


def _systems(model: Model, dataset: Dataset, name: str) -> list[Evaluation]:
    """Evaluate BM25, the model, their fusion, and the fusion with dense vectors."""
    encoded = encode_dataset(model, dataset)
    indexes: dict[Space, SpaceIndex] = {"bm25": lexical_index(dataset, time_queries=MEDIAN_OF)}
    indexes["sparse"] = sparse_index(encoded, time_queries=MEDIAN_OF)
    if (dense := dense_index(encoded, load_dense_beside(encoding_model(model)))) is not None:
        indexes["dense"] = dense
    retriever = DatasetRetriever(name, dataset, indexes)
    judged = Judged(retriever, judged_queries(dataset, encoded.queries), dataset, [MEASURE])
    labels, spaces = {"bm25": "BM25", "sparse": name, "dense": "dense"}, [*indexes]
    chosen = [spaces[:1], spaces[1:2], *(spaces[:size] for size in range(2, len(spaces) + 1))]
    return [
        judged.evaluate(
            " + ".join(labels[space] for space in each),
            dict.fromkeys(each, 1.0),
            cost=indexes[each[0]].cost if len(each) == 1 else None,
        )
        for each in chosen
    ]


@contextmanager
def _step(console: Console, title: str) -> Iterator[None]:
    start = perf_counter()
    console.print(f"\n[bold]{title}[/bold]")
    yield
    console.print(f"   [dim]{perf_counter() - start:.0f} s[/dim]")
