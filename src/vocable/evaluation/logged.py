"""Test collections of logged searches: the pages that people clicked are relevant."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import NamedTuple

from vocable.collection.collection import Collection, open_index
from vocable.core.progress import track
from vocable.core.tables import counted, shortened
from vocable.data import BadLines, Qrel, Query
from vocable.data.searches import MOST_CLICKS, read_searches
from vocable.errors import DataError
from vocable.evaluation.addresses import PageAddresses
from vocable.evaluation.dataset import Dataset

ADDRESSES_NAMED = 3  # unmatched addresses in a message
ADDRESS_WIDTH = 80  # characters of each
logger = logging.getLogger(__name__)


class LoggedDataset(NamedTuple):
    """A test collection of logged searches, and the number of addresses that name no page of the index."""

    dataset: Dataset
    unmatched: int


def logged_dataset(log: str, index: str | os.PathLike[str] | Collection, bad: BadLines) -> LoggedDataset:
    """Return the searches of a log as queries, and the pages clicked as judgments of the documents of an index.

    Equal searches, but for white space, are one query. The id of a query has its row among the distinct searches, so
    it stays the same when a log grows. The grade of a document is the number of clicks on its page, or on its section
    if the address has a fragment.

    Raises `DataError` for a log that cannot be read, and for a log without an address of a page of the index.
    """
    if not isinstance(index, Collection):
        with open_index(index) as opened:
            return logged_dataset(log, opened, bad)
    index.check_whole("make_testset")
    documents = list(index.all_documents())
    pages = PageAddresses(documents)
    # The clicks on each document, by query.
    clicks: dict[str, Counter[str]] = {}
    unmatched, addresses = Counter[str](), set[str]()
    for search in track(read_searches(log, bad=bad), "log"):
        answers = clicks.setdefault(search.query, Counter())
        addresses.add(search.page)
        ids = pages.documents(search.page)
        answers.update(dict.fromkeys(ids, search.clicks))
        if not ids:
            unmatched[search.page] += search.clicks
    if not addresses:
        raise DataError("the log has no search", source=log)
    # Tell which pages are missing: an index of another folder, or without links, matches none.
    about = f"{counted(len(unmatched), 'address', 'addresses')} of {len(addresses):,}"
    if len(unmatched) == len(addresses):
        hint = "index with --base-url if the log has links"
        raise DataError(f"no address names a page of {index.place} ({named(unmatched)}): {hint}", source=log)
    if unmatched:
        logger.warning("%s: %s without a page in the index: %s", log, about, named(unmatched))
    queries = [Query(f"q{row}", text) for row, (text, answers) in enumerate(clicks.items()) if answers]
    judgments = [
        Qrel(query.id, name, min(grade, MOST_CLICKS)) for query in queries for name, grade in clicks[query.text].items()
    ]
    return LoggedDataset(Dataset(log, documents, queries, judgments), len(unmatched))


def named(addresses: Counter[str]) -> str:
    """Return the most frequent of some addresses, for a message."""
    names = [repr(shortened(name, ADDRESS_WIDTH)) for name, _ in addresses.most_common(ADDRESSES_NAMED)]
    return ", ".join([*names, *["…"] * (len(addresses) > ADDRESSES_NAMED)])
