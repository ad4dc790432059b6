"""The verb `ablate`: what the wackiest expansion terms are worth (Polyakov et al. 2026, sections 4.1 and 5.1).

A dataset is searched without the wackiest expansion terms, and without as many random ones.

Letters: q queries, d draws.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
from annotated_types import Ge
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.analysis.report import removal_figure
from vocable.data import Document, read_corpus, read_queries
from vocable.data.bad_lines import tolerant
from vocable.encoder.asymmetric import Role
from vocable.encoder.hub import check_length
from vocable.encoder.provenance import checksum, model_name
from vocable.encoder.terms import input_terms, remove_expansions, terms
from vocable.errors import ArgumentError, DataError, require_extra
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.expansion_data import (
    as_setting,
    expansion_data,
    load_model,
    model_of,
    proper_names,
    stored_vectors,
)
from vocable.evaluation.quality import parse_measures
from vocable.evaluation.retrieval import Encoded, encode_dataset
from vocable.fingerprint import fingerprint
from vocable.html import PAGE, RESULTS, Section, drawing, settings_section, write_page
from vocable.options import Count, CountOrZero, DType, checked
from vocable.progress import track
from vocable.storage import finish, finished, read_record, replacing, resumable, write_record
from vocable.tables import NONE, Table, Tabled, p_value
from vocable.vectors import Sources, read_shards
from vocable.wackiness.ablation import MEASURES, Ablation, Control, Outcome
from vocable.wackiness.measure import Choices, find, read_wackiest, write_scores

THRESHOLDS = (10, 100, 1000, 10_000)
DRAWS = 10
SAMPLES = 1000  # of queries and draws, for an interval
SCORES = "scores.parquet"
EXPLANATION = (
    "Of the wackiest terms, those that expand a text of the dataset are removed wherever they do (terms), never where "
    "they stand in the text itself; entries is the share of all expansions that goes with them. p is of the paired "
    "t-test of the queries' values against those with nothing removed. random is the mean over draws of as many of the "
    "dataset's expansion terms, of about the same frequencies where the control is frequency, and the interval mean ± "
    "2 standard deviations: that of other terms on the same queries; the next column says where the value without the "
    "wackiest terms lies. less random is the mean difference from the random removals, with its 95 % interval where "
    "queries and draws are drawn anew. In the figure a filled marker lies outside of the first interval."
)


@dataclass(frozen=True)
class Measured:
    """A measure without the wackiest terms: its value, what this is more than that of the whole vectors, p of the
    paired t-test against these, and where it lies, "below", "inside" or "above", beside the 95 % interval of the
    `random` draws: their `mean` and `std` (of a sample), `low` = mean - 2 std and `high` = mean + 2 std.

    `less_random` is the mean difference from the draws, with the `low` and `high` of its 95 % interval over queries and
    draws (`difference_interval`); empty in a report of before it was measured.
    """

    wacky: float
    difference: float
    p: float
    wacky_is: str
    random: dict[str, float]
    less_random: dict[str, float] = field(default_factory=dict)


def difference_interval(
    values: np.ndarray, draws: np.ndarray, rng: np.random.Generator, samples: int = SAMPLES
) -> dict[str, float]:
    """Return the mean of the values [q] less that of d draws [d, q] of them, with its 95 % percentile interval.

    In each sample queries and draws are drawn anew, both with replacement.

    >>> found = difference_interval(np.zeros(50), np.ones((4, 50)), np.random.default_rng(0))
    >>> {name: round(value, 6) for name, value in found.items()}
    {'difference': -1.0, 'low': -1.0, 'high': -1.0}
    """
    d, q = draws.shape
    differences = values - draws
    of_draws = rng.multinomial(d, np.full(d, 1 / d), size=samples) / d
    of_queries = rng.multinomial(q, np.full(q, 1 / q), size=samples) / q
    low, high = np.percentile(((of_draws @ differences) * of_queries).sum(axis=1), [2.5, 97.5])
    return {"difference": float(differences.mean()), "low": float(low), "high": float(high)}


@dataclass(frozen=True)
class Point:
    """The removal of the `threshold` wackiest terms, beside draws of as many random ones, by measure and whole."""

    threshold: int
    measures: dict[str, Measured]
    wacky: Outcome
    random: tuple[Outcome, ...]

    @classmethod
    def of(
        cls,
        threshold: int,
        wacky: Outcome,
        random: Sequence[Outcome],
        full: Mapping[str, float],
        seed: int = 0,
    ) -> Point:
        """Compare the outcomes; `full` are the values of the whole vectors, `seed` decides what an interval draws."""
        measures, rng = {}, np.random.default_rng([seed, threshold])
        for name, value in wacky.values.items():
            draws = [outcome.values[name] for outcome in random]
            mean, std = float(np.mean(draws)), float(np.std(draws, ddof=1))
            low, high = mean - 2 * std, mean + 2 * std
            # A difference that rounding can make is none.
            side = "below" if value < low - 1e-12 else "above" if value > high + 1e-12 else "inside"
            interval = {"mean": mean, "std": std, "low": low, "high": high}
            own, *others = ([*one.per_query.get(name, {}).values()] for one in (wacky, *random))
            apart = difference_interval(np.array(own), np.array(others), rng) if own else {}
            measures[name] = Measured(value, value - full[name], wacky.p[name], side, interval, apart)
        kept = [replace(outcome, per_query={}) for outcome in (wacky, *random)]
        return cls(threshold, measures, kept[0], tuple(kept[1:]))


@dataclass(frozen=True)
class Removal:
    """Removals on one dataset: `full` are the values of the whole vectors, `points` by rising threshold."""

    dataset: str
    role: Role
    queries: int
    full: dict[str, float]
    points: tuple[Point, ...]

    def tables(self) -> list[Table]:
        """Return a table for each measure, with a row for nothing removed and one for each threshold."""
        title = f"{self.dataset}, {self.queries} queries, {self.role} expansions"
        header = ["removed", "terms", "entries", "random entries", "", "p", "random", "interval", "wacky is"]
        grids = []
        for measure, value in self.full.items():
            rows = [["0", "0", "0.0%", "0.0%", f"{value:.4f}", *[NONE] * 4]]
            apart = [point.measures[measure].less_random for point in self.points]
            for point in self.points:
                found, random = point.measures[measure], float(np.mean([outcome.share for outcome in point.random]))
                cells = [f"{point.threshold:,}", f"{point.wacky.terms:,}", f"{point.wacky.share:.1%}", f"{random:.1%}"]
                cells += [f"{found.wacky:.4f}", p_value(found.p), f"{found.random['mean']:.4f}"]
                rows.append([*cells, f"{found.random['low']:.4f}–{found.random['high']:.4f}", found.wacky_is])
            if any(apart):
                rows = [[*row, _signed(one)] for row, one in zip(rows, [{}, *apart], strict=True)]
            columns = [name or measure for name in header] + ["less random"] * any(apart)
            grids.append(Table(title, columns, rows))
        return grids


def _signed(interval: Mapping[str, float]) -> str:
    """A difference and its interval in a cell.

    >>> _signed({"difference": -0.00312, "low": -0.01, "high": 0.0042})
    '-0.0031 (-0.0100 to +0.0042)'
    """
    if not interval:
        return NONE
    return f"{interval['difference']:+.4f} ({interval['low']:+.4f} to {interval['high']:+.4f})"


@dataclass(frozen=True)
class RemovalReport(Tabled):
    """A report in the folder `output`: how it was measured, and the removals on each dataset."""

    settings: dict[str, Any]
    datasets: list[Removal]
    output: Path = Path()

    def table(self) -> list[Table | str]:
        """Return a table for each dataset and measure, and where the rest is."""
        return [*self._tables(), f"{self.output / PAGE}: all of it on one page"]

    def _tables(self) -> list[Table]:
        return [grid for one in self.datasets for grid in one.tables()]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"settings": self.settings, "datasets": [asdict(one) for one in self.datasets]}

    def write(self, folder: Path) -> None:
        """Write the files of the report into a folder that is there."""
        figure = drawing(removal_figure(self.datasets), folder, "removal", "Measures against removed terms")
        write_record(folder / RESULTS, self.to_json())
        tables = [f"{grid.title}\n\n{grid.markdown()}" for grid in self._tables()]
        with replacing(folder / "removal.md") as file:
            file.write("\n\n".join(tables).encode() + b"\n")
        sections = [Section("What the wackiest expansion terms are worth", [figure, EXPLANATION])]
        sections += [Section(one.dataset, one.tables()) for one in self.datasets]
        datasets = ", ".join(Path(one.dataset).name for one in self.datasets)
        title = f"Removal of expansion terms of {Path(self.settings['model']).name} on {datasets}"
        write_page(folder, title, [*sections, settings_section(self.settings)])


@checked
@tolerant
def ablate(
    model: str | SparseEncoder,
    datasets: str | Sequence[str],
    output: str | os.PathLike[str],
    *,
    scores: str | os.PathLike[str] | None = None,
    thresholds: Sequence[Count] = THRESHOLDS,
    measures: Sequence[str] | None = None,
    draws: Annotated[int, Ge(2)] = DRAWS,
    control: Control = "frequency",
    role: Role = "query",
    seed: CountOrZero = 0,
    dtype: DType = "auto",
    max_length: Count | None = None,
    device: str | None = None,
    vectors: Sources | None = None,
    query_vectors: Sources | None = None,
    skip_bad: CountOrZero = 0,
) -> RemovalReport:
    """Remove the wackiest expansions and as many random ones, measure what is lost, and write a report.

    Repeated with the same arguments it goes on where it was stopped.

    Args:
        model: a folder, a Hub id, or a model from `vocable.load`.
        datasets: sources of documents, queries and judgments together, as "beir:DIR".
        output: folder of the report; there only when it is whole.
        scores: what `vocable measure-wackiness` wrote for the model; by default they are measured on the first dataset.
        thresholds: numbers of terms to remove.
        measures: names of ir_measures; by default nDCG@10 and R@100.
        draws: how often random terms are drawn for each threshold, twice at least.
        control: which random terms. "frequency" draws as many that expand about as many texts as the wackiest do,
            "number" as many of any frequency, as the paper does.
        role: whose expansions are removed.
        seed: decides the draws.
        dtype: "auto" computes in bfloat16 where the device has it natively.
        max_length: tokens of a text, in place of the model's own length.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        vectors: the documents of the one dataset as `vocable encode` wrote them, instead of encoding. A folder, or
            several shards.
        query_vectors: the same of its queries; both or neither.
        skip_bad: bad lines in the datasets that are tolerated, and left out.

    Raises:
        ArgumentError: an argument out of its range, or the output is there and something else.
        DataError: a dataset cannot be read.
        ModelError: the model cannot be loaded.
        VectorsError: scores or stored vectors are of another vocabulary, or damaged.
        MissingExtraError: matplotlib is not installed.
    """
    output, measures = Path(output), list(measures or MEASURES)
    sources = [datasets] if isinstance(datasets, str) else list(datasets)
    check_plan(thresholds, draws)
    if control not in get_args(Control):
        raise ArgumentError(f"control must be one of {', '.join(get_args(Control))}, not {control!r}")
    parse_measures(measures)
    require_extra("matplotlib", "figures")
    if bool(vectors) != bool(query_vectors) or (vectors and len(sources) > 1):
        raise ArgumentError("vectors and query_vectors go together, and are of one dataset")
    check_length(model, max_length)
    for source in sources:
        load_dataset(source, documents=False)  # the last one's mistake is not to be found after hours on the others
    encoder, name = load_model(model, device), model_name(model)
    names = terms(encoder)
    ranking = None if scores is None else zlib.crc32(read_wackiest(scores, names).tobytes())
    settings: dict[str, Any] = {"model": name, "weights": checksum(encoder), "datasets": sources}
    settings |= {"scores": scores and str(scores), "ranking": ranking, "role": role, "measures": measures}
    settings |= {"dtype": dtype, "max_length": max_length, "thresholds": sorted(set(thresholds)), "draws": draws}
    settings |= {"seed": seed, "vectors": as_setting(vectors), "query_vectors": as_setting(query_vectors)}
    settings["inputs"] = fingerprint(*sources, *settings["vectors"], *settings["query_vectors"])
    settings["control"] = control
    if not finished(output, settings):
        with resumable(output, settings) as work:
            whole, found = work / "whole", []
            whole.mkdir(exist_ok=True)
            file = Path(scores or whole / SCORES)
            for number, source in enumerate(sources):
                dataset = load_dataset(source)
                if vectors and query_vectors:
                    queries = stored_vectors(query_vectors, encoder, [query.id for query in dataset.queries])
                    documents = stored_vectors(vectors, encoder, [one.id for one in dataset.documents])
                    encoded = Encoded(dataset, queries, documents, 0.0)
                else:
                    options: dict[str, Any] = {"name": name, "dtype": dtype, "max_length": max_length}
                    encoded = encode_dataset(encoder, dataset, keep=work / "vectors" / str(number), **options)
                if not file.exists():
                    score_dataset(file, encoder, name, encoded, role)
                ablation = Ablation(encoded, input_terms(encoder, _texts(dataset, role)), measures, role=role)
                plan: dict[str, Any] = {
                    "draws": draws,
                    "seed": seed,
                    "control": control,
                    "folder": work / "outcomes" / str(number),
                }
                found.append(remove_wackiest(ablation, read_wackiest(file, names), thresholds, **plan))
            RemovalReport(settings, found).write(whole)
            finish(work, output, whole)
    return replace(read_record(output / RESULTS, RemovalReport), output=output)


def remove_wackiest(
    ablation: Ablation,
    wackiest: np.ndarray,
    thresholds: Sequence[int] = THRESHOLDS,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    control: Control = "frequency",
    folder: Path | None = None,
) -> Removal:
    """Remove the wackiest expansion terms (columns, in order), and as many random ones, and measure each.

    Of the N wackiest terms those count that are an expansion in the dataset; as many random ones are drawn from all
    expansion terms of the dataset (`Ablation.control`). Where the scores come from the same texts these are N and N.
    Each of the `draws` has its own random numbers, so that it does not depend on the others. The `folder` keeps each
    search as a file; what an earlier call with the same arguments has found there is not searched again.
    """
    check_plan(thresholds, draws)
    ordered, outcomes = sorted(set(thresholds)), []
    for threshold, number in track([*product(ordered, range(draws + 1))], "search"):
        chosen = np.intersect1d(wackiest[:threshold], ablation.candidates)
        if number:
            rng = np.random.default_rng([seed, threshold, number])
            chosen = ablation.control(chosen, control, rng)
        file = folder and folder / f"{threshold}-{f'random-{number}' if number else 'wacky'}.json"
        if file and file.exists():
            outcome = read_record(file, Outcome)
        else:
            outcome = ablation.without(chosen)
            if file:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_record(file, outcome)
        outcomes.append(outcome)
    rows = [outcomes[start : start + draws + 1] for start in range(0, len(outcomes), draws + 1)]
    full, encoded = ablation.values(), ablation.encoded
    points = [Point.of(threshold, row[0], row[1:], full, seed) for threshold, row in zip(ordered, rows, strict=True)]
    return Removal(encoded.dataset.name, ablation.role, len(encoded.query_ids), full, tuple(points))


@checked
def check_plan(thresholds: Sequence[Count], draws: Annotated[int, Ge(2)]) -> None:
    """Raise `ArgumentError` for a threshold or a number of draws that is out of its range."""
    if not thresholds or min(thresholds) < 1:
        raise ArgumentError(f"thresholds must be numbers of terms of at least 1, not {list(thresholds)}")


def _texts(dataset: Dataset, role: Role) -> list[str]:
    """The texts of the queries or of the documents, by row."""
    return [one.text for one in dataset.queries] if role == "query" else [one.full for one in dataset.documents]


def score_dataset(path: Path, model: SparseEncoder, name: str, encoded: Encoded, role: Role) -> None:
    """Measure the wackiness of the expansions of one role in a dataset, and write the scores to `path`."""
    choices, dataset, documents = Choices(), encoded.dataset, _texts(encoded.dataset, "document")
    itself = np.arange(len(documents)) if role == "document" else None  # a document does not find itself
    vectors: dict[str, Any] = {"vectors": encoded.documents, "query_vectors": encoded.queries}
    options: dict[str, Any] = {"name": name, "ids": encoded.document_ids, "itself": itself, **vectors}
    data = expansion_data(model, _texts(dataset, role), documents, choices.k, **options)
    finding = find(data, choices, names=proper_names(documents), draws=0)
    write_scores(path, finding, choices, model=name, role=role, queries=dataset.name, corpus=dataset.name)


class WackyPruner:
    """What `vocable.prune` calls to remove the `wackiest` terms from stored vectors where they are expansions.

    `scores` is what `vocable measure-wackiness` wrote. `texts` is the source of what was encoded, whose own terms stay; it is
    read once, in the order of the vectors, and others may stand between. `model` is what made the vectors, if it has
    moved. A call raises `DataError` if there is no text with the id of a vector.

    Raises:
        ArgumentError: no term is to be removed, or the vectors are of another vocabulary than the model.
        VectorsError: the scores are.
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
        raise DataError(f"has no text {name!r}, or not in the order of the vectors", source=self._source)
