"""Reports of `measure_wackiness`: folders with a page, tables, figures and JSON; model cards.

Figures and tables follow Polyakov et al. 2026, table 2 and figure 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from huggingface_hub import EvalResult, ModelCard

from vocable.core.html import PAGE, RESULTS, Section, Words, drawing, settings_section, write_page
from vocable.core.storage import read_record, replacing, write_record
from vocable.core.tables import NONE, Table, Tabled
from vocable.errors import ArgumentError, ModelError, require_extra
from vocable.wackiness.expansions import TERM_KINDS
from vocable.wackiness.measure import WACKIEST, AreaDifference, ExpanderWackiness, WackinessRecord, area_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CARD = "README.md"
CURVE_SIZE = (7.0, 4.5)  # inches
LINE_STYLES = ("-", "--", "-.", ":")
ABOUT_AREAS = (
    "W-AUC is the area under the Normalized Wackiness Curve; a lower area means fewer wacky terms. The value after ± "
    "is its standard deviation over bootstrap draws of the inputs. The interval of a difference uses the same draws "
    "for both models (paired bootstrap). Scored terms expand at least one input; L0 and expansions are mean numbers "
    "of terms per input."
)
YARDSTICK = (
    "published, on MS MARCO: BM25+RM3 0.833, SPLADE-v2-L1 0.934, SPLADE-v3 0.947, SPLADE-v2 0.959, "
    "SPLADE-v2-DistilRoBERTa 0.989 (Polyakov et al. 2026, table 2); other collections differ"
)
ABOUT_KINDS = (
    "The share of each kind in the scored terms, and in the expansions of all inputs; the mean Wackiness Score is the"
    " mean over the expansions, each counted once. A kind of few frequent terms is small among the terms and large "
    "among the expansions."
)
ABOUT_WACKIEST = (
    "Grouped by kind, the wackiest first. Of terms with equal scores, the term that expands more inputs comes first."
)
ABOUT_CARDS = (
    "Documents is the number of documents that contain the term, inputs the number of inputs that it expands, weight "
    "its mean weight in them. Nearest are the terms whose rows of the output layer have the greatest cosine with the "
    "term's row."
)


@dataclass(frozen=True)
class WackinessReport(Tabled):
    """A report in the folder `output`: settings, and the wackiness of each expander."""

    settings: dict[str, Any]
    models: list[WackinessRecord]
    output: Path = Path()

    @classmethod
    def read(cls, output: str | Path) -> WackinessReport:
        """Read the report in a folder."""
        return replace(read_record(Path(output) / RESULTS, cls), output=Path(output))

    def table(self) -> list[Table | str]:
        """Return the W-AUC of each expander, and the place of the page."""
        page = f"{self.output / PAGE}: curves, the wackiest terms, and the settings"
        return [areas_table(self.models), *_absent(self.models), page]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {"output": str(self.output), "settings": self.settings, "models": self.models}


def write_report(folder: Path, expanders: Sequence[ExpanderWackiness], run: Mapping[str, Any]) -> None:
    """Write a report into an existing folder: the page, results.json, curves.png and .svg.

    `run` are the settings of the whole run as JSON values, among them "corpus". Raises `ArgumentError` if no expander
    expands anything.
    """
    models = [expander.record for expander in expanders]
    for model, expander in zip(models[1:], expanders[1:], strict=True):
        if (difference := area_difference(expander, expanders[0])) is not None:
            model["difference"] = difference
    curves = drawing(curves_figure(models), folder, "curves", "Normalized Wackiness Curves")
    write_record(folder / RESULTS, {"settings": dict(run), "models": models})
    sections = [
        Section("Area under the curve", [areas_table(models), *_absent(models), ABOUT_AREAS]),
        Section("Curves", [curves]),
        Section("Kinds of expansions", [kinds_table(models), ABOUT_KINDS]),
        Section(f"The {WACKIEST} wackiest terms", [Words(wackiest_table(models)), ABOUT_WACKIEST]),
    ]
    for model in models:
        if model["wackiest"] and "nearest" in model["wackiest"][0]:
            sections.append(Section(f"Expansions by {model['name']}", [Words(cards_table(model)), ABOUT_CARDS]))
    if models[0]["sensitivity"]:
        note = "W-AUC with a single changed setting. The settings are below."
        sections.append(Section("Sensitivity", [sensitivity_table(models), note]))
    title = f"Wackiness of {', '.join(model['name'] for model in models)} on {_short(run['corpus'])}"
    write_page(folder, title, [*sections, settings_section(run)])


def areas_table(models: Sequence[WackinessRecord]) -> Table:
    """Return the W-AUC of each expander (table 2 of the paper), and its numbers of expansions."""
    rows = []
    baseline = next((model["difference"]["to"] for model in models if model.get("difference")), "")
    for model in models:
        w_auc = _number(model["w_auc"]) + ("" if model["std"] is None else f" ± {_number(model['std'])}")
        scored = f"{model['scored_terms']:,} of {model['terms']:,}"
        rows.append([model["name"], w_auc, scored, f"{model['active_terms']:,.1f}", f"{model['expansions']:,.1f}"])
        if baseline:
            rows[-1].insert(2, _difference(model.get("difference")))
    column = [f"above {baseline}, 95 %"] if baseline else []
    return Table("", ["model", "W-AUC", *column, "scored terms", "L0", "expansions"], rows, notes=[YARDSTICK])


def _absent(models: Sequence[WackinessRecord]) -> list[str]:
    """Return a sentence about each expander most of whose terms no document contains."""
    return [
        f"{model['name']}: {model['absent_terms']:,} of {model['scored_terms']:,} scored terms are in no document and "
        "have the score 1 for that alone: measure on a larger collection."
        for model in models
        if 2 * model["absent_terms"] > model["scored_terms"]
    ]


def _difference(difference: AreaDifference | None) -> str:
    return (
        NONE
        if difference is None
        else f"{difference['value']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    )


def kinds_table(models: Sequence[WackinessRecord]) -> Table:
    """Return the share of each kind in the scored terms and the expansions of each expander, and its mean score."""
    counts = [{row["kind"]: row for row in model["kinds"]} for model in models]
    rows = []
    for kind in TERM_KINDS:
        cells = []
        for kinds in counts:
            terms, expansions = (sum(row[key] for row in kinds.values()) for key in ("terms", "expansions"))
            if (row := kinds.get(kind)) is None:
                cells += [NONE] * 3
            else:
                cells += [f"{row['terms'] / terms:.1%}", f"{row['expansions'] / expansions:.1%}", f"{row['score']:.3f}"]
        if any(kind in kinds for kinds in counts):
            rows.append([kind, *cells])
    prefixes = ["" if len(models) == 1 else f"{model['name']}: " for model in models]
    header = [f"{prefix}{name}" for prefix in prefixes for name in ("terms", "expansions", "mean score")]
    return Table("", ["kind", *header], rows)


def wackiest_table(models: Sequence[WackinessRecord]) -> Table:
    """Return the wackiest terms of each expander side by side, grouped by kind (table 3 of the paper)."""
    rows: list[list[str]] = []
    for kind in TERM_KINDS:
        lists = [[term["term"] for term in model["wackiest"] if term["kind"] == kind] for model in models]
        for row, terms in enumerate(zip_longest(*lists, fillvalue="")):
            rows.append(["" if row else kind, *terms])
    return Table("", ["kind", *(model["name"] for model in models)], rows)


def cards_table(model: WackinessRecord) -> Table:
    """Return the cards of the wackiest terms of an expander."""
    rows = []
    for term in model["wackiest"]:
        counts = f"{term['documents']:,}", f"{term['inputs']:,}", f"{term['weight']:.2f}"
        rows.append([term["term"], *counts, " / ".join(term["examples"]), ", ".join(term["nearest"])])
    return Table("", ["term", "documents", "inputs", "weight", "added most to", "nearest terms"], rows)


def sensitivity_table(models: Sequence[WackinessRecord]) -> Table:
    """Return the W-AUC of each expander with the settings of the run, and with each changed setting."""
    rows = [["unchanged", *(_number(model["w_auc"]) for model in models)]]
    for changed in zip(*(model["sensitivity"] for model in models), strict=True):
        rows.append([changed[0]["setting"], *(_number(result["w_auc"]) for result in changed)])
    return Table("", ["setting", *(model["name"] for model in models)], rows)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def curves_figure(models: Sequence[WackinessRecord]) -> Figure:
    """Draw the curve of each expander (Polyakov et al. 2026, figure 4).

    Expanders without expansions are left out. Raises `ArgumentError` if no expander remains.
    """
    require_extra("matplotlib", "figures")
    from matplotlib.figure import Figure

    curves = [(model, model["curve"]) for model in models if model["curve"] is not None]
    if not curves:
        raise ArgumentError("nothing to draw: no term is an expansion")
    figure = Figure(figsize=CURVE_SIZE, layout="constrained")
    axes = figure.add_subplot()
    for number, (model, curve) in enumerate(curves):
        places = np.linspace(0, 100, len(curve)) if len(curve) > 1 else np.array([50.0])
        style, marker = LINE_STYLES[number // 10 % len(LINE_STYLES)], "" if len(curve) > 1 else "o"
        label = f"{model['name']} ({_number(model['w_auc'])})"
        axes.plot(places, curve, style, marker=marker, color=f"C{number}", label=label)
    axes.set_xlabel("terms that are expansions, wackiest first (%)")
    axes.set_ylabel("mean Wackiness Score")
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(title="W-AUC", frameon=False, loc="lower left")
    return figure


def write_card(folder: str | Path, wackiness: WackinessRecord, run: Mapping[str, Any]) -> Path:
    """Write a measurement as evaluation results into the card of the model in `folder`, creating it if necessary.

    `wackiness` and `run` are records of a report's results.json. A measurement replaces an earlier measurement with the
    same inputs, collection and settings; the rest of the card stays. Raises `ModelError` if the folder does not exist
    or its card cannot be read.
    """
    path = Path(folder) / CARD
    if not path.parent.is_dir():
        raise ModelError(f"{folder}: no such folder of a model")
    inputs = "documents" if run["role"] == "document" else f"queries of {_short(run['queries'])}"
    if run["limit"] is not None:
        inputs = f"{run['limit']:,} {inputs}"
    settings = {key: run[key] for key in ("k", "idf", "bins", "whole_vocabulary", "special", "splitter")}
    measures = {"W-AUC": ("w_auc", wackiness["w_auc"]), "W-AUC, standard deviation": ("std", wackiness["std"])}
    measures["scored terms"] = ("scored_terms", wackiness["scored_terms"])
    results = [
        EvalResult(
            metric_type=key,
            metric_name=name,
            metric_value=value,
            metric_args=settings,
            task_type="sparse-retrieval",
            task_name="wackiness",
            dataset_config=inputs,
            dataset_type=_short(run["corpus"]),
            dataset_name=_short(run["corpus"]),
        )
        for name, (key, value) in measures.items()
        if value is not None
    ]
    try:
        card = ModelCard(path.read_bytes().decode() if path.exists() else "")
        data: Any = card.data
    except ValueError as error:  # also invalid UTF-8
        raise ModelError(f"{path}: cannot be read: {error}") from error
    others = [old for old in data.eval_results or [] if not any(new.is_equal_except_value(old) for new in results)]
    data.model_name = data.model_name or Path(folder).resolve().name
    data.eval_results = [*others, *results]
    with replacing(path) as file:
        file.write(str(card).encode())
    return path


def _short(source: str) -> str:
    """Return the name of a source without the folders of this machine.

    >>> _short("beir:data/scifact"), _short("data/queries.jsonl"), _short("ir_datasets:msmarco/dev")
    ('scifact', 'queries.jsonl', 'ir_datasets:msmarco/dev')
    """
    scheme, colon, rest = source.partition(":")
    return source if colon and scheme not in ("beir", "file") else PurePath(rest or source).name
