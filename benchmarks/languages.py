"""Does BM25 find known items better in the language of a collection?

    apt-get download libreoffice-help-de libreoffice-help-ja libreoffice-help-zh-cn   # and dpkg-deb -x each of them
    python benchmarks/languages.py german=de/usr/share/libreoffice/help/de/text japanese=... chinese=...

Each collection is any source of `vocable index`; a folder of pages gives a document for each section. The queries are
titles and sentences, which their documents then lack (`vocable.tuning.questions`); a title that several documents have
is none, nor is a query in English where the language is written without spaces. BM25 in English, the default, is the
first of each table; the differences to it have paired 95 % intervals (Student's t over the queries). With icu4py
installed, `+icu` is measured, too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from random import Random

from ir_measures import Qrel

import vocable as vo
from vocable.core.tables import Table
from vocable.data import Document, Query
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.retrieval import retrieve_lexically
from vocable.evaluation.significance import mean_interval
from vocable.language.languages import ENGLISH, ICU, NO_LANGUAGE, UNSPACED_LANGUAGES, language_of
from vocable.language.words import words
from vocable.tuning.questions import Kind, Rarity, question

MEASURES = ("nDCG@10", "RR")


def known_items(documents: Sequence[Document], language: str, kind: Kind, count: int) -> Dataset:
    """Ask for documents by their titles or sentences, and return all documents, those without the queries."""
    titles, found = Counter(document.title for document in documents), list(documents)
    rarity, queries, judgments = Rarity([document.full for document in documents]), list[Query](), list[Qrel]()
    for row in Random(0).sample(range(len(documents)), len(documents)):
        made = question(documents[row], kind, rarity)
        if made is None or (kind == "title" and titles[documents[row].title] > 1):
            continue
        if made.query.isascii() and language in UNSPACED_LANGUAGES:
            continue
        found[row] = made.document
        queries.append(Query(str(row), made.query))
        judgments.append(Qrel(str(row), made.document.id, 1))
        if len(queries) == count:
            break
    return Dataset(f"{language}: {kind}", found, queries, judgments)


def measured(dataset: Dataset, languages: Sequence[str]) -> Table:
    """BM25's quality in each language, and its differences to the first."""
    found = [
        evaluate_run(one, retrieve_lexically(dataset, language=one, time_queries=0), dataset, MEASURES)
        for one in languages
    ]
    rows = []
    for one in found:
        cells = [one.name]
        for measure in MEASURES:
            differences = {
                query: value - found[0].per_query[measure][query] for query, value in one.per_query[measure].items()
            }
            low, high = mean_interval(differences)
            mean = one.values[measure] - found[0].values[measure]
            cells += [
                f"{one.values[measure]:.3f}",
                "" if one is found[0] else f"{mean:+.3f} ({low:+.3f} to {high:+.3f})",
            ]
        rows.append(cells)
    title = f"{dataset.name}, {len(dataset.queries):,} queries, {len(dataset.documents):,} documents"
    return Table(title, ["words", *(one for measure in MEASURES for one in (measure, "difference"))], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", metavar="LANGUAGE=SOURCE")
    parser.add_argument("--queries", type=int, default=600, help="queries of each kind, at most")
    arguments = parser.parse_args()
    for collection in arguments.collections:
        name, _, source = collection.partition("=")
        language = language_of(name).name
        documents = [*{tuple(words(one.text)): one for one in vo.read_corpus(source)}.values()]
        compared = [ENGLISH, language, NO_LANGUAGE]
        if language in UNSPACED_LANGUAGES and find_spec("icu4py"):
            compared.append(language + ICU)
        for kind in ("title", "sentence"):
            print(measured(known_items(documents, language, kind, arguments.queries), compared), flush=True)


if __name__ == "__main__":
    main()
