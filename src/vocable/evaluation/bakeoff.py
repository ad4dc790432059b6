"""The verb `bakeoff`: searches of an index and other searches answer the same queries, and are compared by page."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.core.progress import track
from vocable.core.storage import check_file, replacing
from vocable.data import Qrel, Query, ScoredDoc
from vocable.data.texts import as_texts
from vocable.encoding.hub import BUILT_IN_MODEL, BY_LOOKUP
from vocable.errors import DataError, UnwrittenError
from vocable.evaluation.addresses import PageAddresses
from vocable.evaluation.bakeoff_report import BAKEOFF_MEASURES, BakeOff, PageHit, SearchAnswers
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.logged import named
from vocable.evaluation.other_searches import OtherSearch, other_search
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.significance import compare
from vocable.options import SearchOptions, check, checked

PAGES = 10  # of an answer


@dataclass(frozen=True)
class Contender:
    """A search: `ask` returns the first pages of a query, and the bytes of the answer if they are known.

    `size` is the size of its index or file, with the word for it. Answers that are read from a file are not `timed`.
    """

    name: str
    ask: Callable[[Query], tuple[list[PageHit], int | None]]
    size: tuple[float, str] | None = None
    timed: bool = True


@checked
def bakeoff(
    index: str | os.PathLike[str] | Collection,
    testset: str | os.PathLike[str],
    *,
    also: Sequence[str] = (),
    output: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> BakeOff:
    """Compare searches on a test set: an index's and other programs'.

    An index has a default search, a search by words (BM25) and, with vocable-mini, a search that looks queries up in a
    table. All searches answer all queries in one run, one at a time. They are compared by page: the sections of a page
    are one hit.

    Args:
        index: place of an index; in Python also the result of `vocable.open_index`.
        testset: folder of `vocable make-testset`, or another source with queries and judgments of the index.
        also: other searches, one each time: a TREC run; a .json file with an object from queries to lists of addresses;
            an address with {query} that answers with a JSON list of addresses, or of objects with url or id; or the
            address of a vocable service.
        output: HTML file with the table, and the hits of the 20 queries with the largest differences.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.

    Raises:
        ArgumentError: another search's address does not begin with http:// or https://.
        DataError: the test set or results cannot be read, or name no page of the index.
        ServiceError: another search does not answer in ten seconds, or not in the expected JSON.
        UnwrittenError: the page cannot be written; the error has the result.
    """
    if output is not None:
        check_file(output)
    dataset = load_dataset(f"beir:{os.fspath(testset)}" if Path(testset).is_dir() else testset, documents=False)
    with ExitStack() as stack:
        queries = list(dataset.queries)
        others = [stack.enter_context(closing(other_search(source, queries))) for source in as_texts(also, "also")]
        if not isinstance(index, Collection):
            index = stack.enter_context(closing(open_index(index, device=device)))
        result = _compared(index, dataset, others)
    if output is not None:
        try:
            with replacing(output) as file:
                file.write(result.html().encode())
        except OSError as error:
            raise UnwrittenError(error, result) from error
    return result


def _compared(collection: Collection, dataset: Dataset, others: Sequence[OtherSearch]) -> BakeOff:
    collection.check_whole("bakeoff")
    pages = PageAddresses(collection.all_documents())
    judged, missing = _by_page(dataset, pages)
    contenders = [*_searches_of(collection, pages)]
    for other in others:
        contenders.append(_other(other, pages, {each.name for each in contenders}))
    answers = [_with_unknown(each, pages, collection.place) for each in _asked(contenders, judged.queries)]
    evaluations = [evaluate_run(each.name, _run(each, judged.queries), judged, BAKEOFF_MEASURES) for each in answers]
    # The relevant pages of each query, those with the highest grade first.
    expected: defaultdict[str, list[PageHit]] = defaultdict(list)
    for judgment in sorted(judged.judgments, key=lambda judgment: -judgment.relevance):
        if judgment.relevance > 0:
            expected[judgment.query_id].append(_hit(pages, judgment.doc_id))
    return BakeOff(
        index=collection.place,
        queries=judged.queries,
        expected=[expected[query.id] for query in judged.queries],
        answers=answers,
        compared=compare(evaluations),
        missing=missing,
    )


def _by_page(dataset: Dataset, pages: PageAddresses) -> tuple[Dataset, int]:
    """Return the dataset with judgments of pages, each its highest grade, and the number of unknown documents.

    Raises `DataError` if no relevant document is in the index.
    """
    grades: dict[tuple[str, str], int] = {}
    for query, name, grade, _ in dataset.judgments:
        place = query, pages.page_of.get(name, name)
        grades[place] = max(grade, grades.get(place, grade))
    relevant = {judgment.doc_id for judgment in dataset.judgments if judgment.relevance > 0}
    unknown = relevant - pages.page_of.keys()
    if len(unknown) == len(relevant):
        raise DataError(f"none of the {len(relevant):,} relevant documents is in the index", source=dataset.name)
    judgments = [Qrel(*place, grade) for place, grade in grades.items()]
    return Dataset(dataset.name, [], dataset.queries, judgments), len(unknown)


def _searches_of(collection: Collection, pages: PageAddresses) -> Iterator[Contender]:
    """Yield the searches of an index, the default first."""
    size = collection.store.nbytes

    def contender(name: str, searched: Collection, options: Any) -> Contender:
        def ask(query: Query) -> tuple[list[PageHit], None]:
            [answer] = search(searched, [query.text], PAGES, **{**options, "plain": True})
            names = [pages.page_of[hit.document.id] for hit in answer.pages or answer.hits]
            return [_hit(pages, name) for name in dict.fromkeys(names)], None

        return Contender(name, ask, None if size is None else (size, "index"))

    weights = collection.searcher.weighting(check(SearchOptions, {}))
    yield contender("search", collection, {})
    if "bm25" in collection.spaces and weights.keys() != {"bm25"}:
        yield contender("words (BM25)", collection, {"weights": "bm25"})
    if collection.models.name == BUILT_IN_MODEL:
        yield contender("looked up", collection.with_model(BY_LOOKUP), {})


def _other(other: OtherSearch, pages: PageAddresses, taken: set[str]) -> Contender:
    """Return another search, under a name that is not taken; its hits are pages of the index where they are known."""
    name = other.name
    while name in taken:
        name += "'"

    def ask(query: Query) -> tuple[list[PageHit], int | None]:
        hits, nbytes = other.hits(query)
        names = (pages.page(*addresses) or addresses[0] for addresses in hits)
        return [_hit(pages, name) for name in list(dict.fromkeys(names))[:PAGES]], nbytes

    size = None if other.file_bytes is None else (float(other.file_bytes), "file")
    return Contender(name, ask, size, timed=other.file_bytes is None)


def _hit(pages: PageAddresses, name: str) -> PageHit:
    page = pages.pages.get(name)
    return PageHit(name, name, name) if page is None else PageHit(name, page.title, page.address)


def _asked(contenders: Sequence[Contender], queries: Sequence[Query]) -> list[SearchAnswers]:
    """Ask all queries of all searches, in turns; the first query is asked once more at the start, untimed."""
    hits: list[list[list[PageHit]]] = [[] for _ in contenders]
    times, sizes = np.empty((len(contenders), len(queries))), np.zeros((len(contenders), len(queries)))
    for number, query in enumerate(track(queries, "bake-off")):
        for row, contender in enumerate(contenders):
            if not number:
                contender.ask(query)
            start = perf_counter()
            answer, nbytes = contender.ask(query)
            times[row, number] = 1000 * (perf_counter() - start)
            sizes[row, number] = nbytes or 0
            hits[row].append(answer)
    return [
        SearchAnswers(
            name=contender.name,
            hits=hits[row],
            times=times[row] if contender.timed else None,
            size=contender.size or ((float(sizes[row].mean()), "answer") if sizes[row].any() else None),
        )
        for row, contender in enumerate(contenders)
    ]


def _with_unknown(answers: SearchAnswers, pages: PageAddresses, place: str) -> SearchAnswers:
    """Count the hits that are no page of the index; raise `DataError` if none is."""
    names = Counter(hit.page for hits in answers.hits for hit in hits)
    unknown = Counter({name: count for name, count in names.items() if name not in pages.pages})
    if unknown and len(unknown) == len(names):
        raise DataError(f"no hit is a page of {place}: {named(unknown)}", source=answers.name)
    return replace(answers, unknown=unknown.total())


def _run(answers: SearchAnswers, queries: Sequence[Query]) -> Iterator[ScoredDoc]:
    for query, hits in zip(queries, answers.hits, strict=True):
        yield from (ScoredDoc(query.id, hit.page, float(-rank)) for rank, hit in enumerate(hits))
