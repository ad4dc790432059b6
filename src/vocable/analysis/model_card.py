"""How wacky a model is, in its own card: one table in the README.md of its folder, and nothing else there is touched.

The table stands between two comments that markdown does not show. A measurement takes the place of an earlier one of
the same inputs, collection and choices; those of others stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from vocable.errors import ModelError
from vocable.evaluation.tables import NONE, Grid
from vocable.storage import replacing

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
    section = "\n".join([BEGIN, "## Wackiness", "", ABOUT, "", Grid("", HEADER, rows).markdown(), "", END])
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
