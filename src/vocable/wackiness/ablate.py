"""The verb `ablate`: search without the wackiest expansion terms, and without as many random ones
(Polyakov et al. 2026, sections 4.1 and 5.1).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from typing_extensions import Unpack

from vocable.data import Document, read_corpus, read_queries
from vocable.data.bad_lines import tolerant
from vocable.encoder.asymmetric import Role
from vocable.encoder.checks import check_length
from vocable.encoder.provenance import checksum, model_name
from vocable.encoder.sparse_encoder import load_model, model_of
from vocable.encoder.terms import input_terms, remove_expansions, terms
from vocable.errors import ArgumentError, DataError, require_extra
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import parse_measures
from vocable.evaluation.retrieval import Encoded, encode_dataset
from vocable.fingerprint import fingerprint, settings_of
from vocable.html import RESULTS
from vocable.options import Count, CountOrZero, ExpansionStudy, checked
from vocable.storage import finish, finished, read_record, resumable
from vocable.vectors import Sources, read_shards
from vocable.wackiness.ablation import (
    ABLATION_MEASURES,
    RANDOM_DRAWS,
    THRESHOLDS,
    Ablation,
    Control,
    check_thresholds,
    remove_wackiest,
)
from vocable.wackiness.expansions import expansion_data, proper_names, stored_vectors
from vocable.wackiness.measure import read_wackiest, wackiness_of, write_scores
from vocable.wackiness.report import AblationReport
from vocable.wackiness.score import WackinessSettings


@tolerant
@checked
def ablate(
    model: str | SparseEncoder,
    datasets: str | Sequence[str],
    output: str | os.PathLike[str],
    *,
    scores: str | os.PathLike[str] | None = None,
    thresholds: Sequence[Count] = THRESHOLDS,
    measures: Sequence[str] | None = None,
    draws: Annotated[int, Ge(2)] = RANDOM_DRAWS,
    control: Control = "frequency",
    role: Role = "query",
    skip_bad: CountOrZero = 0,
    **options: Unpack[ExpansionStudy],
) -> AblationReport:
    """Remove the wackiest expansions and as many random ones, measure the loss of quality, and write a report.

    An interrupted run resumes when repeated.

    Args:
        model: a folder, a Hub id, or a model from `vocable.load`.
        datasets: sources of documents, queries and judgments together, as "beir:DIR".
        output: folder of the report (written atomically).
        scores: scores that `vocable measure-wackiness` wrote for the model; by default measured on the first dataset.
        thresholds: numbers of terms to remove.
        measures: names of ir_measures; by default nDCG@10 and R@100.
        draws: number of random draws for each threshold, at least 2.
        control: "frequency" draws random terms that expand about as many texts as the wackiest ones, "number" random
            terms of any frequency, as the paper does.
        role: role of the texts that lose expansions.
        skip_bad: number of bad lines of the datasets to tolerate and skip.
        options: the fields of `vocable.options.ExpansionStudy`.

    Raises:
        ArgumentError: an argument is out of its range, or something else exists at `output`.
        DataError: a dataset cannot be read.
        ModelError: the model cannot be loaded.
        VectorsError: scores or stored vectors have another vocabulary, or are damaged.
        MissingExtraError: matplotlib is not installed.
    """
    measures, sources = list(measures or ABLATION_MEASURES), [datasets] if isinstance(datasets, str) else list(datasets)
    arguments, output = locals() | {"datasets": sources}, Path(output)
    vectors, query_vectors, seed = options.get("vectors"), options.get("query_vectors"), options.get("seed", 0)
    dtype, max_length = options.get("dtype", "auto"), options.get("max_length")
    check_thresholds(thresholds)
    parse_measures(measures)
    require_extra("matplotlib", "figures")
    if bool(vectors) != bool(query_vectors) or (vectors and len(sources) > 1):
        raise ArgumentError("vectors and query_vectors go together, with a single dataset")
    check_length(model, max_length)
    for source in sources:
        load_dataset(source, documents=False)  # errors of the last one are found before hours of work on the others
    encoder, name = load_model(model, options.get("device")), model_name(model)
    names = terms(encoder)
    if scores is not None:
        read_wackiest(scores, names)  # raises an error for another vocabulary
    others: dict[str, object] = {"model": name, "weights": checksum(encoder), "thresholds": sorted(set(thresholds))}
    settings = settings_of(ablate, arguments, others | {"dtype": dtype, "max_length": max_length, "seed": seed})
    if not finished(output, settings):
        with resumable(output, settings) as work:
            whole, found = work / "whole", []
            whole.mkdir(exist_ok=True)
            file = Path(scores or whole / "scores.parquet")
            for number, source in enumerate(sources):
                dataset = load_dataset(source)
                if vectors and query_vectors:
                    queries = stored_vectors(query_vectors, encoder, [query.id for query in dataset.queries])
                    documents = stored_vectors(vectors, encoder, [one.id for one in dataset.documents])
                    encoded = Encoded(dataset, queries, documents, 0.0)
                else:
                    keep = work / "vectors" / str(number)
                    encoded = encode_dataset(encoder, dataset, keep=keep, name=name, dtype=dtype, max_length=max_length)
                if not file.exists():
                    score_dataset(file, encoder, name, encoded, role)
                ablation = Ablation(encoded, input_terms(encoder, _texts(dataset, role)), measures, role=role)
                folder, plan = work / "searches" / str(number), {"draws": draws, "seed": seed}
                wackiest = read_wackiest(file, names)
                found.append(remove_wackiest(ablation, wackiest, thresholds, **plan, control=control, folder=folder))
            AblationReport(settings, found).write(whole)
            finish(work, output, whole)
    return replace(read_record(output / RESULTS, AblationReport), output=output)


def _texts(dataset: Dataset, role: Role) -> list[str]:
    return [one.text for one in dataset.queries] if role == "query" else [one.full for one in dataset.documents]


def score_dataset(path: Path, model: SparseEncoder, name: str, encoded: Encoded, role: Role) -> None:
    """Measure the wackiness of the expansions of one role in a dataset, and write the scores to `path`."""
    settings, dataset = WackinessSettings(bootstrap=0), encoded.dataset
    documents = _texts(dataset, "document")
    data = expansion_data(
        model,
        _texts(dataset, role),
        documents,
        settings.k,
        name=name,
        itself=np.arange(len(documents)) if role == "document" else None,
        vectors=encoded.documents,
        query_vectors=encoded.queries,
        ids=encoded.document_ids,
    )
    found = wackiness_of(data, settings, names=proper_names(documents))
    write_scores(path, found, settings, model=name, role=role, queries=dataset.name, corpus=dataset.name)


class WackyPruner:
    """A shard filter for `vocable.prune` that removes the `wackiest` terms where they are expansions.

    `scores` is a file of `vocable measure-wackiness`. `texts` is the source of the encoded texts, whose own terms stay;
    it is read once, in the order of the vectors, and may have further texts in between. `model` replaces the model
    that made the vectors, if it has moved. A call raises `DataError` if a vector's id has no text.

    Raises:
        ArgumentError: `wackiest` is below 1, or the vectors have another vocabulary than the model.
        VectorsError: the scores have another vocabulary than the model.
    """

    @checked
    def __init__(
        self,
        vectors: Sources,
        scores: str | os.PathLike[str],
        *,
        wackiest: Count,
        texts: str,
        model: str | SparseEncoder | None = None,
    ) -> None:
        meta = next(read_shards(vectors)).meta
        self._encoder, self._source = model_of(meta, model), texts
        self._columns = read_wackiest(scores, terms(self._encoder))[:wackiest]
        self._documents = iter(read_corpus(texts))
        if meta.role == "query":
            self._documents = (Document(query.id, query.text) for query in read_queries(texts))
        removed = zlib.crc32(self._columns.tobytes())
        self.made_from = {"removed": removed, "texts": texts, "texts_inputs": fingerprint(texts)}

    def __call__(self, ids: Sequence[str], matrix: csr_array) -> csr_array:
        own = input_terms(self._encoder, [self._text_of(name) for name in ids])
        return remove_expansions(matrix, own, self._columns)

    def _text_of(self, name: str) -> str:
        for document in self._documents:
            if document.id == name:
                return document.full
        raise DataError(f"no text {name!r}, or not in the order of the vectors", source=self._source)
