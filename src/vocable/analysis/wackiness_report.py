"""What is found about the wackiness of several expanders, as tables and as a folder of files ("Understanding Wacky
Weights: A Dissection of SPLADE's Learned Term Importance", tables 2 and 3, figure 4).

FOLDER/index.html            everything on one page
FOLDER/results.json          the figures, the curves and the wackiest terms
FOLDER/curves.png, .svg      the curves of all expanders
FOLDER/scores.parquet        the score of every term (scores-NAME.parquet each, where there are several expanders)

How wacky a model is, in its own card: one table in the README.md of its folder, and nothing else there is touched.

The table stands between two comments that markdown does not show. A measurement takes the place of an earlier one of
the same inputs, collection and choices; those of others stay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from vocable.analysis.expansion_data import KINDS
from vocable.analysis.figures import save_figure, wackiness_curves
from vocable.analysis.report import Drawing, Section, Words, page, settings_section
from vocable.analysis.wackiness import WACKIEST, Choices, Finding, ScoresMeta, known, write_scores
from vocable.encoder.terms import fingerprint
from vocable.errors import ModelError
from vocable.storage import replacing, write_record
from vocable.tables import NONE, Table

RESULTS, PAGE, CURVES = "results.json", "index.html", "curves"


def table(models: Sequence[Mapping[str, Any]]) -> Table:
    """W-AUC of each expander, the least wacky first (the paper's table 2), and how much it expands.

    `models` are findings as JSON values, as they stand in a report.
    """
    rows = [
        [
            one["name"],
            _number(one["w_auc"]) if one["std"] is None else f"{_number(one['w_auc'])} ± {_number(one['std'])}",
            f"{one['scored_terms']:,} of {one['terms']:,}",
            f"{one['active_terms']:,.1f}",
            f"{one['expansions']:,.1f}",
        ]
        for one in sorted(models, key=lambda one: math.inf if one["w_auc"] is None else one["w_auc"])
    ]
    return Table("", ["model", "W-AUC", "scored terms", "L0", "expansions"], rows)


def wackiest_table(findings: Sequence[Finding]) -> Table:
    """The wackiest terms of each expander side by side, grouped by kind (the paper's table 3)."""
    rows: list[list[str]] = []
    for kind in KINDS:
        lists = [[one.terms[column] for column in one.wackiest if one.kinds[column] == kind] for one in findings]
        for place in range(max(map(len, lists), default=0)):
            rows.append(["" if place else kind, *(those[place] if place < len(those) else "" for those in lists)])
    return Table("", ["kind", *(one.name for one in findings)], rows)


def sensitivity_table(findings: Sequence[Finding]) -> Table:
    """W-AUC of each expander as it is measured, and with one choice another."""
    columns = [{"as chosen": one.w_auc, **dict(one.sensitivity)} for one in findings]
    rows = [[choice, *(_number(known(column[choice])) for column in columns)] for choice in columns[0]]
    return Table("", ["choice", *(one.name for one in findings)], rows)


def write_report(
    folder: Path, findings: Sequence[Finding], metas: Sequence[ScoresMeta], settings: Mapping[str, Any]
) -> None:
    """Write the files of a report into a folder that is there.

    Args:
        folder: for the files.
        findings: one or more.
        metas: what each of their scores are of, from `scores_meta`.
        settings: JSON values that say how they were measured.

    Raises:
        ArgumentError: nothing is expanded by any of them.
        MissingExtraError: matplotlib is not installed.
    """
    drawn = wackiness_curves({one.name: one.curve for one in findings})
    for ending in ("png", "svg"):
        save_figure(drawn, folder / f"{CURVES}.{ending}")
    for one, meta in zip(findings, metas, strict=True):
        path = folder / (f"scores-{_file_name(one.name)}.parquet" if len(findings) > 1 else "scores.parquet")
        write_scores(path, one.wackiness, one.terms, one.kinds, meta)
    write_record(folder / RESULTS, {"settings": dict(settings), "models": [one.to_json() for one in findings]})
    drawing = Drawing((folder / f"{CURVES}.svg").read_text(encoding="utf-8"), "Normalized Wackiness Curves")
    with replacing(folder / PAGE) as file:
        file.write(page("Wackiness", _sections(findings, settings, drawing)).encode())


def scores_meta(finding: Finding, choices: Choices, *, model: str, role: str, queries: str, corpus: str) -> ScoresMeta:
    """What the stored scores of a finding say of themselves."""
    terms = list(finding.terms)
    return ScoresMeta(
        model=model,
        vocabulary=fingerprint(terms),
        size=len(terms),
        role=role,
        k=choices.k,
        idf=choices.idf,
        queries=queries,
        corpus=corpus,
        w_auc=finding.w_auc,
    )


def _sections(findings: Sequence[Finding], settings: Mapping[str, Any], drawing: Drawing) -> list[Section]:
    sections = [
        Section(
            "Area under the curve",
            [
                table([one.to_json() for one in findings]),
                "W-AUC is the area under the Normalized Wackiness Curve; a lower one means fewer wacky terms. After ± "
                "stands its standard deviation when the inputs are drawn again. Scored terms are those that expand "
                "some input; L0 and expansions are means of the terms of an input.",
            ],
        ),
        Section("Curves", [drawing]),
        Section(
            f"The {WACKIEST} wackiest terms",
            [
                Words(wackiest_table(findings)),
                "Grouped by kind, each group from the wackiest on. Of equal scores the term that expands more inputs "
                "comes first.",
            ],
        ),
    ]
    if findings[0].sensitivity:
        note = "W-AUC with one choice another than in the settings below."
        sections.append(Section("Sensitivity", [sensitivity_table(findings), note]))
    return [*sections, settings_section(settings)]


def _file_name(name: str) -> str:
    """A name without what a file's name cannot have.

    >>> _file_name("query2doc:some/model")
    'query2doc_some_model'
    """
    return re.sub(r"[^\w.+-]", "_", name)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


CARD = "README.md"
BEGIN, END = "<!-- wackiness -->", "<!-- end of wackiness -->"
HEADER = ["inputs", "collection", "measured with", "scored terms", "W-AUC", "±"]
IDENTITY = 3  # the columns that say what was measured
ABOUT = (
    "How little the terms that the model adds to a text have to do with what it finds by them (`vocable wackiness`): "
    "W-AUC is the area under the Normalized Wackiness Curve, from 0 to 1, and lower is less wacky; ± is its standard "
    "deviation when the inputs are drawn again."
)


def write_wackiness(folder: str | Path, finding: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    """Write a measurement into the card of the model in `folder`, which gets a card if it has none.

    Args:
        folder: of the model.
        finding: what was found, as in `models` of a report's results.json.
        settings: how it was measured, as in its `settings`.

    Returns:
        the card.

    Raises:
        ModelError: there is no such folder, or its card is not UTF-8.
    """
    card = Path(folder) / CARD
    if not card.parent.is_dir():
        raise ModelError(f"{folder}: no folder of a model, whose card could be written")
    try:
        text = card.read_bytes().decode() if card.exists() else ""
    except UnicodeDecodeError as error:
        raise ModelError(f"{card}: not UTF-8") from error
    text = with_row(text, _row(finding, settings))
    with replacing(card) as file:
        file.write(text.encode())
    return card


def with_row(card: str, row: list[str]) -> str:
    """The text of a card with the row in its table of wackiness; a table is appended where there is none."""
    begin = card.rfind(BEGIN)
    end = card.find(END, begin) if begin >= 0 else -1
    rows = _read_rows(card[begin:end]) if end >= 0 else []
    places = {tuple(old[:IDENTITY]): number for number, old in enumerate(rows)}
    place = places.get(tuple(row[:IDENTITY]), len(rows))
    rows[place : place + 1] = [row]
    section = "\n".join([BEGIN, "## Wackiness", "", ABOUT, "", Table("", HEADER, rows).markdown(), "", END])
    if end >= 0:
        return card[:begin] + section + card[end + len(END) :]
    return (card.rstrip("\n") + "\n\n" if card.strip() else "") + section + "\n"


def _read_rows(section: str) -> list[list[str]]:
    """The cells of the table in a section, without its header."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:])
    return [[cell.replace("\\|", "|") for cell in row] for row in cells if len(row) == len(HEADER)]


def _row(finding: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    inputs = "documents" if settings["role"] == "document" else f"queries of {_called(settings['queries'])}"
    if settings["limit"] is not None:
        inputs = f"{settings['limit']:,} {inputs}"
    return [
        inputs,
        _called(settings["corpus"]),
        _choices(settings),
        f"{finding['scored_terms']:,}",
        *(NONE if finding[key] is None else f"{finding[key]:.3f}" for key in ("w_auc", "std")),
    ]


def _choices(settings: Mapping[str, Any]) -> str:
    """The choices on which W-AUC depends; those that are seldom another only where they are."""
    parts = [f"k = {settings['k']}", f"IDF {settings['idf']}", f"{settings['bins']} bins"]
    if settings["vocabulary"]:
        parts.append("whole vocabulary")
    if not settings["special"]:
        parts.append("no special tokens")
    if settings["words"] != "any":
        parts.append(f"words {settings['words']}")
    return ", ".join(parts)


def _called(place: str) -> str:
    """What a place is called by somebody who has other folders.

    >>> _called("beir:data/scifact"), _called("data/queries.jsonl"), _called("ir_datasets:msmarco/dev")
    ('scifact', 'queries.jsonl', 'ir_datasets:msmarco/dev')
    """
    scheme, colon, rest = place.partition(":")
    return place if colon and scheme not in ("beir", "file") else PurePath(rest or place).name
