"""The verb `measure_wackiness`: the wackiness of models' and expanders' expansions of queries or documents.

Letters: m inputs, n documents of the collection.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
from scipy.sparse import csr_array

from vocable.core.fingerprint import settings_of
from vocable.core.storage import finish, finished, resumable
from vocable.data import Document, read_corpus, read_queries, read_texts
from vocable.data.bad_lines import tolerant
from vocable.encoding.hub import check_length
from vocable.encoding.load import load_model
from vocable.encoding.models import Model, is_model, model_digest, model_name
from vocable.encoding.protocol import Role
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder, warn_of_cut
from vocable.encoding.vectors import read_vectors
from vocable.errors import ArgumentError, DataError, require_extra
from vocable.evaluation.expanders import expander_class, open_expander
from vocable.indexes.exact_shards import Exact
from vocable.options import Count, CountOrZero, checked
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import (
    ExpansionData,
    expansion_data,
    output_rows,
    proper_names,
    stored_index,
    stored_vectors,
)
from vocable.wackiness.measure import wackiness_of, write_scores
from vocable.wackiness.report import WackinessReport, write_card, write_report
from vocable.wackiness.score import variants


@tolerant
@checked
def measure_wackiness(
    models: str | Model | Sequence[str | Model],
    corpus: str,
    output: str | os.PathLike[str],
    *,
    queries: str | None = None,
    role: Role = "query",
    limit: Count | None = None,
    names: str | None = None,
    sensitivity: bool = False,
    card: bool = False,
    skip_bad: CountOrZero = 0,
    **options: Unpack[WackinessOptions],
) -> WackinessReport:
    """Measure how wacky the expansions of models are.

    Wacky terms occur neither in an input nor in the documents that it finds. The report is index.html in the output
    folder, with figures, scores of all terms (Parquet) and JSON. A repeated run reuses what was encoded.

    Args:
        models: folders, Hub ids, bm25+rm3, query2doc:MODEL or doct5query:MODEL; in Python also models from
            `vocable.load`.
        corpus: source of the collection, which is searched; its documents are the inputs of the role document.
        output: folder of the report (written atomically).
        queries: source of the inputs of the role query.
        role: role of the texts whose expansions are measured.
        limit: largest number of inputs, drawn at random; by default all.
        names: source of further texts whose capitals tell which words are names.
        sensitivity: also measure with each setting changed, one at a time.
        card: also write the result into the models' cards, README.md in their folders.
        skip_bad: number of malformed lines to skip; one more is an error.
        options: the fields of `vocable.training_options.WackinessOptions`.

    Raises:
        ArgumentError: an argument is out of its range, or something else exists at `output`.
        DataError: there are no documents or no queries, or texts cannot be read.
        ModelError: a model cannot be loaded.
        VectorsError: stored vectors have another vocabulary, or miss a text.
        MissingExtraError: matplotlib or pyarrow is not installed.
    """
    # Check everything that can be checked before the first model encodes.
    arguments, output = locals(), Path(output)
    several = [models] if isinstance(models, str) or is_model(models) else list(models)
    places = [model_name(model) for model in several]
    for module in ("matplotlib", "pyarrow"):  # before the work
        require_extra(module, "figures,parquet")
    for place in places if card else ():
        if not Path(place).is_dir():
            raise ArgumentError(f"card: the card is written into a model's folder, and {place} is not a folder")
    if len(set(places)) < len(places):
        raise ArgumentError(f"the same model twice: {' '.join(places)}")
    expanders = [expander_class(place, role) for place in places]
    if (options["vectors"] or options["query_vectors"]) and (len(places) > 1 or expanders[0] is not None):
        raise ArgumentError("vectors and query_vectors are for a single model")
    encoders = [None if expander else model for model, expander in zip(several, expanders, strict=True)]
    for encoder in encoders:
        check_length(encoder, options["max_length"])
    # What decides the result: names and weights of the models, and all settings.
    opened = [
        None if encoder is None else load_model(encoder, options["device"], options["runtime"]) for encoder in encoders
    ]
    others = {
        "models": places,
        "digests": ["" if encoder is None else model_digest(encoder) for encoder in opened],
    }
    run = settings_of(measure_wackiness, arguments, others, without=("card",))
    if not finished(output, run):
        # The texts of all models, and words that are names.
        texts = _read(queries, corpus, role, limit, options["seed"])
        named = chain((document.full for document in texts.documents), read_texts(names) if names else ())
        known_names = proper_names(named)
        titles = [place if model is None else Path(place).name for place, model in zip(places, opened, strict=True)]
        if len(set(titles)) < len(titles):
            titles = places
        # Documents for each input: the largest number that a changed setting needs.
        k = max(other["k"] for other in variants(options).values()) if sensitivity else options["k"]
        with resumable(output, run) as work:
            shutil.rmtree(work / "whole", ignore_errors=True)  # left by an interrupted call
            (work / "whole").mkdir()
            measured, origin = [], {"role": role, "queries": queries or "", "corpus": corpus}
            for number, (place, title, model) in enumerate(zip(places, titles, opened, strict=True)):
                # Expand, score, and write the scores of each model.
                data = _expand(title, place, model, texts, k, work / f"{number:02d}", options)
                rows, inputs = None if model is None else output_rows(model), [text.full for text in texts.inputs]
                cards: dict[str, Any] = {"inputs": inputs, "rows": rows}
                wackiness = wackiness_of(data, options, names=known_names, sensitivity=sensitivity, **cards)
                measured.append(wackiness)
                suffix = "-" + re.sub(r"[^\w.+-]", "_", title) if len(places) > 1 else ""
                write_scores(work / "whole" / f"scores{suffix}.parquet", wackiness, options, model=place, **origin)
            write_report(work / "whole", measured, run)
            finish(work, output, work / "whole")
    # Cards are written even if the report is older.
    report = WackinessReport.read(output)
    for place, record in zip(places, report.models, strict=True) if card else ():
        write_card(place, record, report.settings)
    return report


class StudyTexts(NamedTuple):
    """The m inputs and n documents; `itself` [m] has the rows of inputs that are documents."""

    inputs: list[Document]
    documents: list[Document]
    itself: np.ndarray | None


def _read(queries: str | None, corpus: str, role: Role, limit: int | None, seed: int) -> StudyTexts:
    """Read the texts; of more than `limit` inputs, draw `limit` at random and keep their order."""
    if (queries is None) == (role == "query"):
        raise ArgumentError('`role="query"` needs `queries`, and `role="document"` takes its inputs from `corpus`')
    documents = list(read_corpus(corpus))
    if not documents:
        raise DataError("there are no documents", source=corpus)
    inputs = documents if queries is None else [Document(query.id, query.text) for query in read_queries(queries)]
    if not inputs:
        raise DataError("there are no queries", source=queries)
    rows = np.arange(len(inputs))
    if limit is not None and limit < len(inputs):
        rows = np.sort(np.random.default_rng(seed).choice(len(inputs), limit, replace=False))
    return StudyTexts([inputs[row] for row in rows], documents, rows if queries is None else None)


def _expand(
    title: str,
    place: str,
    model: Model | None,
    texts: StudyTexts,
    k: int,
    work: Path,
    options: WackinessOptions,
) -> ExpansionData:
    """Expand the inputs with a model, whose vectors `work` keeps, or with the expander of this name."""
    inputs, collection = ([document.full for document in side] for side in (texts.inputs, texts.documents))
    # An expander such as bm25+rm3 has no vectors.
    if model is None:
        role: Role = "query" if texts.itself is None else "document"
        expander = open_expander(place, collection, role, options["device"])
        return expansion_data(expander, inputs, collection, k, name=title, itself=texts.itself)

    def vectors(role: Role, documents: Sequence[Document]) -> csr_array | Exact:
        sources = options["vectors"] if role == "document" else options["query_vectors"]
        if sources is not None:
            ids = [document.id for document in documents]
            if role == "document":
                return stored_index(sources, model, ids, work / "index")
            return stored_vectors(sources, model, ids)
        # Encode the texts, and continue what an interrupted call has encoded.
        dtype, max_length = options["dtype"], options["max_length"]
        encoder, folder = TextEncoder(model, role, dtype=dtype, max_length=max_length), work / role
        done = encode_stream(encoder, documents, folder, model=place, title=title, total=len(documents))
        warn_of_cut(done.truncated, done.texts, f"{role} texts", encoder.max_length)
        return read_vectors(folder).matrix

    return expansion_data(
        model,
        inputs,
        collection,
        k,
        name=title,
        itself=texts.itself,
        vectors=vectors("document", texts.documents),
        query_vectors=vectors("query", texts.inputs) if texts.itself is None else None,
        ids=[document.id for document in texts.documents],
        splitter=options["splitter"],
    )
