"""Does BM25 find known items better in the language of a collection?

    apt-get download libreoffice-help-de libreoffice-help-ja libreoffice-help-zh-cn   # and dpkg-deb -x each of them
    python benchmarks/languages.py german=de/usr/share/libreoffice/help/de/text japanese=... chinese=...

Each collection is any source of `vocable index`; a folder of pages gives a document for each section. The queries are
titles and sentences, which their documents then lack (`vocable.tuning.questions`). Titles of several documents are left
out, and so are English queries if the language is written without spaces. BM25 in English, the default, is the first
row of each table; the differences from it have paired 95 % intervals (Student's t over the queries). With icu4py
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
from vocable.evaluation.plans import evaluate_words
from vocable.evaluation.retrievers import lexical_index
from vocable.evaluation.significance import mean_interval
from vocable.language.languages import ENGLISH, ICU, NO_LANGUAGE, UNSPACED_LANGUAGES, language_of
from vocable.language.words import words
from vocable.tuning.questions import QuestionKind, question

MEASURES = ("nDCG@10", "RR")


def known_items(documents: Sequence[Document], language: str, kind: QuestionKind, count: int) -> Dataset:
    """Ask for documents by their titles or sentences; return all documents, without these titles and sentences."""
    titles, searched = Counter(document.title for document in documents), list(documents)
    queries, judgments = list[Query](), list[Qrel]()
    for row in Random(0).sample(range(len(documents)), len(documents)):
        asked = question(documents[row], kind)
        if asked is None or (kind == "title" and titles[documents[row].title] > 1):
            continue
        if asked.query.isascii() and language in UNSPACED_LANGUAGES:
            continue
        searched[row] = asked.document
        queries.append(Query(str(row), asked.query))
        judgments.append(Qrel(str(row), asked.document.id, 1))
        if len(queries) == count:
            break
    return Dataset(f"{language}: {kind}", searched, queries, judgments)


def measured(dataset: Dataset, languages: Sequence[str]) -> Table:
    """Return BM25's quality in each language, and its differences from the first language."""
    evaluations = [
        evaluate_words(lexical_index(dataset, language=language), dataset, MEASURES, language) for language in languages
    ]
    rows = []
    for evaluation in evaluations:
        cells = [evaluation.name]
        for measure in MEASURES:
            differences = {
                query: value - evaluations[0].per_query[measure][query]
                for query, value in evaluation.per_query[measure].items()
            }
            low, high = mean_interval(differences)
            mean = evaluation.values[measure] - evaluations[0].values[measure]
            cells += [
                f"{evaluation.values[measure]:.3f}",
                "" if evaluation is evaluations[0] else f"{mean:+.3f} ({low:+.3f} to {high:+.3f})",
            ]
        rows.append(cells)
    title = f"{dataset.name}, {len(dataset.queries):,} queries, {len(dataset.documents):,} documents"
    return Table(title, ["words", *(name for measure in MEASURES for name in (measure, "difference"))], rows)


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
