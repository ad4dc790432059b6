"""The verb `compare`: stored evaluations side by side, or models measured alike on one dataset, for a choice."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vocable import imported
from vocable.data.bad_lines import tolerant
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Convention, Dataset
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.significance import Comparison
from vocable.evaluation.significance import compare as compare_evaluations
from vocable.options import Count, CountOrZero, checked

if TYPE_CHECKING:  # what measures models is imported where there are any: evaluations are set side by side at once
    from vocable.evaluation.choice import Choice
    from vocable.evaluation.evaluate import System
    from vocable.options import DType


@checked
@tolerant
def compare(
    systems: System | Evaluation | Sequence[System | Evaluation] | Mapping[str, System],
    dataset: str | os.PathLike[str] | Dataset | None = None,
    measures: Sequence[str] | None = None,
    *,
    grid: Sequence[str] | None = None,
    max_p95: str | float | None = None,
    max_bytes_per_document: str | float | None = None,
    output: str | os.PathLike[str] | None = None,
    dtype: DType = "auto",
    max_length: Count | None = None,
    convention: Convention | None = None,
    mixed_conventions: bool = False,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> Comparison | Choice:
    """Set evaluations side by side, or measure models on a dataset and choose one and a pruning within a budget.

    Evaluations are tested against the first (paired t-test). With a dataset each model encodes it once and is searched
    in many ways: quality, active terms, bytes, texts encoded a second, and the time from a query's text to its hits.

    Args:
        systems: evaluations, and JSON files that `vocable evaluate` wrote; with `dataset`, models from `vocable.load`
            or their names, or several by the names to call them.
        dataset: measure models on this: a source such as "beir:DIR", or a `Dataset`.
        measures: names of ir_measures, the first of which is the quality to choose by; by default nDCG@10 and R@100.
        grid: ways to search, as "document_max_terms=0,64 document_min_weight=0,0.5" (`vocable.evaluation.grid`); by
            default 30 of them.
        max_p95: the longest that an answer may take at the 95th percentile, as 20ms or 0.5s. In Python a number is of
            milliseconds.
        max_bytes_per_document: the most that the exact index may take, as 600 or 1.5kB.
        output: folder for the figure, all settings and the vectors; there only when it is whole. A killed call goes on
            when it is repeated, and with another budget nothing is measured again.
        dtype: "auto" computes in bfloat16 where the device has it natively.
        max_length: tokens per text, in place of a model's own length.
        convention: with `dataset`, "trec_eval" counts every hit, "beir" none with the id of its query; by default
            BEIR's for its collections.
        mixed_conventions: set evaluations side by side although their conventions or orders of ties differ.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        skip_bad: bad lines in the dataset that are tolerated, and left out.

    Raises:
        ArgumentError: arguments that exclude each other, a budget or measure that cannot be read, evaluations that
            differ in their dataset, measures, queries or conventions, or something else at `output`.
        DataError: the dataset or a file of evaluations cannot be read.
        ModelError: no such model.
        MissingExtraError: there is an output, and matplotlib is not installed.
    """
    given: dict[str, Any] = {"measures": measures, "grid": grid, "output": output, "max_length": max_length}
    given |= {"convention": convention, "device": device}
    given |= {"max_p95": max_p95, "max_bytes_per_document": max_bytes_per_document}
    if dataset is not None:
        if mixed_conventions:
            raise ArgumentError("mixed_conventions goes with stored evaluations, without `dataset`")
        choice: Choice = imported("vocable.evaluation.select:choose")(systems, dataset, dtype=dtype, **given)
        return choice
    stored = _stored(systems)
    if found := next((name for name, value in given.items() if value is not None), None):
        raise ArgumentError(f"{found} goes with models and `dataset`")
    return compare_evaluations(stored, mixed_conventions=mixed_conventions)


def _stored(systems: Any) -> list[Evaluation | str | os.PathLike[str]]:
    """Evaluations and the names of files of them, none of which looks like a model."""
    several = [systems] if isinstance(systems, Evaluation | str | os.PathLike) else list(systems)
    if isinstance(systems, Mapping) or not all(isinstance(one, Evaluation | str | os.PathLike) for one in several):
        raise ArgumentError("models are compared on a dataset: give `dataset`")
    for one in several:
        if not isinstance(one, Evaluation) and _is_model(Path(one)):
            raise ArgumentError(f"{one}: no file of evaluations; models are compared on a dataset: give `dataset`")
    return several


def _is_model(path: Path) -> bool:
    return path.is_dir() or (not path.exists() and path.suffix != ".json")
