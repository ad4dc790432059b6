"""The verb `measure_wackiness`: how wacky the expansions of models are (Polyakov et al. 2026, tables 2 and 3, figure 4).

The folder of a report has everything on one page (index.html), the figures, curves and wackiest terms (results.json),
the drawn curves (curves.png, .svg), and the score of every term (scores.parquet; scores-NAME.parquet of each of several
expanders).

Letters: m inputs, n documents of the collection.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from huggingface_hub import EvalResult, ModelCard
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.analysis.report import wackiness_curves
from vocable.data import Document, read_corpus, read_queries, read_texts
from vocable.data.bad_lines import tolerant
from vocable.encoder.asymmetric import Role
from vocable.encoder.hub import check_length
from vocable.encoder.idf import Formula
from vocable.encoder.provenance import checksum, model_name
from vocable.encoder.stream import encode_stream
from vocable.encoder.terms import Words as Splitter
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, DataError, ModelError, require_extra
from vocable.evaluation.expanders import expander_class, open_expander
from vocable.evaluation.expansion_data import (
    KINDS,
    ExpansionData,
    as_setting,
    expansion_data,
    load_model,
    output_rows,
    proper_names,
    stored_vectors,
)
from vocable.fingerprint import fingerprint
from vocable.html import PAGE, RESULTS, Section, Words, drawing, settings_section, write_page
from vocable.options import Count, CountOrZero, DType, checked
from vocable.storage import finish, finished, read_record, replacing, resumable, write_record
from vocable.tables import NONE, Table, Tabled
from vocable.vectors import Sources, read_vectors
from vocable.wackiness.measure import WACKIEST, Choices, Finding, find, known, term_cards, write_scores

logger = logging.getLogger(__name__)
CARD = "README.md"
ABOUT_AREAS = (
    "W-AUC is the area under the Normalized Wackiness Curve; a lower one means fewer wacky terms. After ± stands its "
    "standard deviation when the inputs are drawn again. The interval of a difference is of the same draws for both "
    "(paired bootstrap). Scored terms are those that expand some input; L0 and "
    "expansions are means of the terms of an input."
)
ABOUT_KINDS = (
    "The share of each kind in the scored terms, and in the expansions of all inputs; the mean Wackiness Score is that "
    "of the expansions, each counted once. A kind of few frequent terms is small among the terms and large among the "
    "expansions."
)
ABOUT_WACKIEST = (
    "Grouped by kind, each group from the wackiest on. Of equal scores the term that expands more inputs comes first."
)

ABOUT_CARDS = (
    "Documents are those in which the term itself stands, inputs those to which it is added, weight is the mean there. "
    "Nearest are the terms whose rows of the output layer have the greatest cosine with its own."
)


@dataclass(frozen=True)
class WackinessReport(Tabled):
    """A report in the folder `output`: how it was measured, and the findings as JSON values, by expander."""

    settings: dict[str, Any]
    models: list[dict[str, Any]]
    output: Path = Path()

    def table(self) -> list[Table | str]:
        """Return W-AUC of each expander, and where the rest is."""
        where = f"{self.output / PAGE}: curves, the wackiest terms, and how they were measured"
        return [areas_table(self.models), where]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"output": str(self.output), "settings": self.settings, "models": self.models}


@checked
@tolerant
def measure_wackiness(
    models: str | SparseEncoder | Sequence[str | SparseEncoder],
    corpus: str,
    output: str | os.PathLike[str],
    *,
    queries: str | None = None,
    role: Role = "query",
    limit: Count | None = None,
    k: Count = 100,
    idf: Formula = "log",
    special: bool = True,
    splitter: Splitter = "any",
    bins: Count = 100,
    whole_vocabulary: bool = False,
    expansions: Count | None = None,
    bootstrap: CountOrZero = 100,
    seed: CountOrZero = 0,
    names: str | None = None,
    sensitivity: bool = False,
    card: bool = False,
    dtype: DType = "auto",
    max_length: Count | None = None,
    device: str | None = None,
    vectors: Sources | None = None,
    query_vectors: Sources | None = None,
    skip_bad: CountOrZero = 0,
) -> WackinessReport:
    """Measure how little the expansion terms of models have to do with what they find, and write a report.

    Repeated with the same arguments it goes on where it was stopped, and does not encode again what was encoded.

    Args:
        models: folders, Hub ids, or models from `vocable.load`; "bm25+rm3", "query2doc:MODEL" or "doct5query:MODEL".
        corpus: source of the collection, which is searched; of the role "document", the inputs are of it.
        output: folder of the report; there only when it is whole.
        queries: source of the inputs, where these are queries.
        role: which texts are expanded; documents are those of `corpus`.
        limit: inputs at most, drawn at random. None is all.
        k: documents that an input retrieves.
        idf: "log" is log(n / df); "bm25" is BM25's, which is never 0.
        special: count special tokens such as [CLS] as expansions, too.
        splitter: for models whose terms are whole words: what a word of a text is.
        bins: points of the curve.
        whole_vocabulary: divide all terms into the bins, not only those that have a score.
        expansions: count only so many expansions of an input, the heaviest: as many of each model. None is all.
        bootstrap: draws of the inputs, for the standard deviation; 0 for none.
        seed: decides what is drawn.
        names: source of more texts whose capitals say which words are names.
        sensitivity: also measure with each choice changed, one at a time.
        card: also write the result into the models' cards, README.md in their folders.
        dtype: "auto" computes in bfloat16 where the device has it natively.
        max_length: tokens of a text, in place of the model's own length.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        vectors: the collection as `vocable encode` wrote it with the one model, instead of encoding. A folder, or
            several shards.
        query_vectors: the same of the queries.
        skip_bad: bad lines in the collection, the queries and the names that are tolerated, and left out.

    Raises:
        ArgumentError: an argument out of its range, or the output is there and something else.
        DataError: there are no documents or no queries, or texts cannot be read.
        ModelError: a model cannot be loaded.
        VectorsError: stored vectors are of another vocabulary, or miss a text.
        MissingExtraError: matplotlib is not installed.
    """
    output, choices = Path(output), Choices(k, idf, special, bins, whole_vocabulary, expansions)
    chosen = [models] if isinstance(models, str | SparseEncoder) else list(models)
    called = [model_name(one) for one in chosen]
    require_extra("matplotlib", "figures")  # missed before the work, not after it
    if bootstrap == 1:  # has no standard deviation
        raise ArgumentError("bootstrap needs 2 draws at least, or 0 for none")
    for name in called if card else ():
        if not Path(name).is_dir():
            raise ArgumentError(f"card: it is written into the folder of a model, and {name} is none")
    if len(set(called)) < len(called):
        raise ArgumentError(f"the same model twice: {' '.join(called)}")
    expanders = [expander_class(name, role) for name in called]
    if (vectors or query_vectors) and (len(called) > 1 or expanders[0] is not None):
        raise ArgumentError("vectors and query_vectors are of one model: name no other one")
    for one, expander in zip(chosen, expanders, strict=True):
        check_length(one if expander is None else None, max_length)
    opened = [None if known else load_model(one, device) for one, known in zip(chosen, expanders, strict=True)]
    stored: dict[Role, Sources | None] = {"document": vectors, "query": query_vectors}
    settings: dict[str, Any] = {"models": called, "weights": ["" if one is None else checksum(one) for one in opened]}
    settings |= {**choices.settings(), "bootstrap": bootstrap, "seed": seed, "sensitivity": sensitivity}
    settings |= {"splitter": splitter, "dtype": dtype, "max_length": max_length, "queries": queries, "corpus": corpus}
    settings |= {"names": names, "role": role, "limit": limit}
    settings |= {"vectors": as_setting(vectors), "query_vectors": as_setting(query_vectors)}
    sources = filter(None, (corpus, queries, names))
    settings["inputs"] = fingerprint(*sources, *settings["vectors"], *settings["query_vectors"])
    if not finished(output, settings):
        inputs, documents, itself = _read(queries, corpus, role, limit, seed)
        named = proper_names(chain((one.full for one in documents), read_texts(names) if names else ()))
        short = [name if known else Path(name).name for name, known in zip(called, expanders, strict=True)]
        titles = short if len(set(short)) == len(short) else called
        deepest = max(other.k for other in choices.others().values()) if sensitivity else k
        texts: dict[str, Any] = {
            "inputs": inputs,
            "documents": documents,
            "itself": itself,
            "k": deepest,
            "device": device,
        }
        texts |= {"splitter": splitter, "stored": stored, "dtype": dtype, "max_length": max_length}
        drawn: dict[str, Any] = {"draws": bootstrap, "seed": seed, "sensitivity": sensitivity}
        with resumable(output, settings) as work:
            findings = []
            for number, (name, title, model) in enumerate(zip(called, titles, opened, strict=True)):
                data = _expand(title, name, model, work / f"{number:02d}", **texts)
                found, rows = find(data, choices, names=named, **drawn), None if model is None else output_rows(model)
                cards = term_cards(data, found.wackiest, [one.full for one in inputs], rows, choices)
                findings.append(replace(found, cards=cards))
            write_report(work / "whole", findings, choices, settings)
            finish(work, output, work / "whole")
    report = replace(read_record(output / RESULTS, WackinessReport), output=output)
    for name, finding in zip(called if card else (), report.models if card else (), strict=True):
        write_card(name, finding, report.settings)
    return report


def _read(
    queries: str | None, corpus: str, role: Role, limit: int | None, seed: int
) -> tuple[list[Document], list[Document], np.ndarray | None]:
    """The m inputs, all or `limit` of them at random in their order, the n documents, and the row that each input is
    among these, [m]; None of queries.
    """
    if (queries is None) == (role == "query"):
        raise ArgumentError("--role query needs --queries, and --role document takes its inputs from --corpus")
    documents = list(read_corpus(corpus))
    if not documents:
        raise DataError("there are no documents", source=corpus)
    inputs = documents if queries is None else [Document(query.id, query.text) for query in read_queries(queries)]
    if not inputs:
        raise DataError("there are no queries", source=queries)
    rows = np.arange(len(inputs))
    if limit is not None and limit < len(inputs):
        rows = np.sort(np.random.default_rng(seed).choice(len(inputs), limit, replace=False))
    return [inputs[row] for row in rows], documents, rows if queries is None else None


def _expand(
    title: str,
    name: str,
    model: SparseEncoder | None,
    work: Path,
    *,
    inputs: Sequence[Document],
    documents: Sequence[Document],
    itself: np.ndarray | None,
    k: int,
    splitter: Splitter,
    device: str | None,
    stored: Mapping[Role, Sources | None],
    **encoding: Any,
) -> ExpansionData:
    """Expand the inputs with a model, whose vectors are kept in `work`; without one, with the expander of the name."""
    asked, collection = [one.full for one in inputs], [one.full for one in documents]
    options: dict[str, Any] = {"name": title, "itself": itself}
    if model is None:
        opened = open_expander(name, collection, "query" if itself is None else "document", device)
        return expansion_data(opened, asked, collection, k, **options)

    def vectors(role: Role, texts: Sequence[Document]) -> csr_array:
        if (sources := stored[role]) is not None:
            return stored_vectors(sources, model, [text.id for text in texts])
        encoder, folder = TextEncoder(model, role, **encoding), work / role
        done = encode_stream(encoder, texts, folder, model=name, title=title, total=len(texts))
        if done.truncated:
            message = "%s: %d of %d %s texts were cut at %d tokens"
            logger.warning(message, title, done.truncated, done.texts, role, encoder.max_length)
        return read_vectors(folder).matrix

    options |= {"vectors": vectors("document", documents), "ids": [one.id for one in documents], "splitter": splitter}
    if itself is None:
        options["query_vectors"] = vectors("query", inputs)
    return expansion_data(model, asked, collection, k, **options)


def write_report(folder: Path, findings: Sequence[Finding], choices: Choices, settings: Mapping[str, Any]) -> None:
    """Write the files of a report into a folder for them; what is there is replaced.

    `settings` are JSON values that say how the findings were measured, among them "models", "role", "queries" and
    "corpus". Raises `ArgumentError` if nothing is expanded by any of them.
    """
    shutil.rmtree(folder, ignore_errors=True)  # of a call that was killed while it wrote
    folder.mkdir(parents=True)
    curves = drawing(wackiness_curves(findings), folder, "curves", "Normalized Wackiness Curves")
    about = {"role": settings["role"], "queries": settings["queries"] or "", "corpus": settings["corpus"]}
    for one, model in zip(findings, settings["models"], strict=True):
        suffix = "-" + re.sub(r"[^\w.+-]", "_", one.name) if len(findings) > 1 else ""
        write_scores(folder / f"scores{suffix}.parquet", one, choices, model=model, **about)
    models = [one.to_json() for one in findings]
    for model, one in zip(models[1:], findings[1:], strict=True):
        if (found := one.difference(findings[0])) is not None:
            model["difference"] = found
    write_record(folder / RESULTS, {"settings": dict(settings), "models": models})
    sections = [
        Section("Area under the curve", [areas_table(models), ABOUT_AREAS]),
        Section("Curves", [curves]),
        Section("Kinds of expansions", [kinds_table(findings), ABOUT_KINDS]),
        Section(f"The {WACKIEST} wackiest terms", [Words(wackiest_table(findings)), ABOUT_WACKIEST]),
    ]
    for one in findings:
        if one.cards:
            sections.append(Section(f"Where {one.name} adds them", [Words(cards_table(one)), ABOUT_CARDS]))
    if findings[0].sensitivity:
        note = "W-AUC with one choice another than in the settings below."
        sections.append(Section("Sensitivity", [sensitivity_table(findings), note]))
    title = f"Wackiness of {', '.join(one.name for one in findings)} on {_short(settings['corpus'])}"
    write_page(folder, title, [*sections, settings_section(settings)])


def areas_table(models: Sequence[Mapping[str, Any]]) -> Table:
    """Return W-AUC of each expander (table 2 of the paper), and how much it expands.

    `models` are findings as JSON values.
    """
    rows = []
    compared = next((one["difference"]["to"] for one in models if one.get("difference")), "")
    for one in models:
        w_auc = _number(one["w_auc"]) + ("" if one["std"] is None else f" ± {_number(one['std'])}")
        scored = f"{one['scored_terms']:,} of {one['terms']:,}"
        rows.append([one["name"], w_auc, scored, f"{one['active_terms']:,.1f}", f"{one['expansions']:,.1f}"])
        if compared:
            rows[-1].insert(2, _difference(one.get("difference")))
    column = [f"above {compared}, 95 %"] if compared else []
    return Table("", ["model", "W-AUC", *column, "scored terms", "L0", "expansions"], rows)


def _difference(found: Mapping[str, Any] | None) -> str:
    return NONE if found is None else f"{found['value']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"


def kinds_table(findings: Sequence[Finding]) -> Table:
    """Return the share of each kind in the scored terms and the expansions of each expander, and its mean score."""
    counts = [{row["kind"]: row for row in one.by_kind()} for one in findings]
    totals = [{key: sum(row[key] for row in own.values()) for key in ("terms", "expansions")} for own in counts]
    rows = []
    for kind in KINDS:
        cells = [kind]
        for own, total in zip(counts, totals, strict=True):
            row = own.get(kind)
            cells += [NONE] * 3 if row is None else [f"{row[key] / whole:.1%}" for key, whole in total.items()]
            cells += [] if row is None else [f"{row['score']:.3f}"]
        if any(kind in own for own in counts):
            rows.append(cells)
    prefixes = ["" if len(findings) == 1 else f"{one.name}: " for one in findings]
    header = [f"{prefix}{name}" for prefix in prefixes for name in ("terms", "expansions", "mean score")]
    return Table("", ["kind", *header], rows)


def wackiest_table(findings: Sequence[Finding]) -> Table:
    """Return the wackiest terms of each expander side by side, grouped by kind (table 3 of the paper)."""
    rows: list[list[str]] = []
    for kind in KINDS:
        lists = [[one.terms[column] for column in one.wackiest if one.kinds[column] == kind] for one in findings]
        for row, terms in enumerate(zip_longest(*lists, fillvalue="")):
            rows.append(["" if row else kind, *terms])
    return Table("", ["kind", *(one.name for one in findings)], rows)


def cards_table(finding: Finding) -> Table:
    """Return where the wackiest terms of an expander stand, where it adds them, and what is like them."""
    rows = []
    for column, card in zip(finding.wackiest, finding.cards, strict=False):
        counts = f"{card.documents:,}", f"{finding.wackiness.inputs[column]:,}", f"{card.weight:.2f}"
        rows.append([finding.terms[column], *counts, " / ".join(card.examples), ", ".join(card.nearest)])
    return Table("", ["term", "documents", "inputs", "weight", "added most to", "nearest terms"], rows)


def sensitivity_table(findings: Sequence[Finding]) -> Table:
    """Return W-AUC of each expander as it is measured, and with one choice another."""
    columns = [{"as chosen": one.w_auc, **dict(one.sensitivity)} for one in findings]
    rows = [[choice, *(_number(known(column[choice])) for column in columns)] for choice in columns[0]]
    return Table("", ["choice", *(one.name for one in findings)], rows)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def write_card(folder: str | Path, finding: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    """Write a measurement as evaluation results into the card of the model in `folder`, which gets one if it has none.

    `finding` and `settings` are those of a report's results.json. A measurement takes the place of an earlier one of
    the same inputs, collection and choices; all else stays. Raises `ModelError` if there is no such folder, or its card
    cannot be read.
    """
    path = Path(folder) / CARD
    if not path.parent.is_dir():
        raise ModelError(f"{folder}: no folder of a model, whose card could be written")
    inputs = "documents" if settings["role"] == "document" else f"queries of {_short(settings['queries'])}"
    if settings["limit"] is not None:
        inputs = f"{settings['limit']:,} {inputs}"
    about: dict[str, Any] = {"task_type": "sparse-retrieval", "task_name": "wackiness", "dataset_config": inputs}
    about |= dict.fromkeys(("dataset_type", "dataset_name"), _short(settings["corpus"]))
    choices = {key: settings[key] for key in ("k", "idf", "bins", "whole_vocabulary", "special", "splitter")}
    measures = {"w_auc": "W-AUC", "std": "W-AUC, standard deviation", "scored_terms": "scored terms"}
    results = [
        EvalResult(metric_type=key, metric_name=name, metric_value=finding[key], metric_args=choices, **about)
        for key, name in measures.items()
        if finding[key] is not None
    ]
    try:
        card = ModelCard(path.read_bytes().decode() if path.exists() else "")
        data: Any = card.data
    except ValueError as error:  # not UTF-8, too
        raise ModelError(f"{path}: cannot be read: {error}") from error
    others = [old for old in data.eval_results or [] if not any(new.is_equal_except_value(old) for new in results)]
    data.model_name = data.model_name or Path(folder).resolve().name
    data.eval_results = [*others, *results]
    with replacing(path) as file:
        file.write(str(card).encode())
    return path


def _short(source: str) -> str:
    """Return what a source is called by somebody who has other folders.

    >>> _short("beir:data/scifact"), _short("data/queries.jsonl"), _short("ir_datasets:msmarco/dev")
    ('scifact', 'queries.jsonl', 'ir_datasets:msmarco/dev')
    """
    scheme, colon, rest = source.partition(":")
    return source if colon and scheme not in ("beir", "file") else PurePath(rest or source).name
