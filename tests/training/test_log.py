"""The log of a training, as the person who waits reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.training.log import curve, draw, read_log, state_of, summary

TERMS = {"query_terms": 46.41, "document_terms": 88.24}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (TERMS, "46 terms a query, 88 a document, as usual"),
        ({"query_terms": 4.0, "document_terms": 88.0}, "4 terms a query (usual 5 to 128), 88 a document"),
        ({"query_terms": 5.0, "document_terms": 512.0}, "5 terms a query, 512 a document, as usual"),
        (
            {"query_terms": 2900.0, "document_terms": 9100.0},
            "2,900 terms a query (usual 5 to 128), 9,100 a document (usual 20 to 512)",
        ),
    ],
)
def test_terms_are_told_with_the_usual_numbers_of_a_side_beyond_them(terms: dict[str, float], expected: str) -> None:
    assert state_of({"loss": 1.79}, {"loss": 1.01, **terms}, {}) == f"loss 1.79 → 1.01, {expected}"


def test_a_pre_training_has_a_loss_alone_and_a_measure_its_name() -> None:
    assert state_of({"loss": 9.9}, {"loss": 2.94}, {"held_out_loss": 3.1}) == "loss 9.90 → 2.94, held out loss 3.100"
    assert state_of({}, {}, {"nDCG@10": 0.41}) == "nDCG@10 0.410"


def test_a_curve_has_at_most_20_characters_and_the_mean_of_each_part() -> None:
    assert curve([float(100 - i // 5) for i in range(100)]) == "██▇▇▇▆▆▅▅▅▄▄▄▃▃▂▂▂▁▁"
    assert curve([1.0, 1.0]) == "▁▁"
    assert curve([]) == ""


def lines() -> list[dict[str, float]]:
    return [
        {
            "step": step,
            "loss": 2 / step,
            "base_loss": 1.9 / step,
            "query_regularizer_loss": 0.1,
            "grad_norm": 5.0,
            **TERMS,
        }
        for step in range(1, 6)
    ]


def test_the_last_line_has_steps_minutes_loss_and_its_curve() -> None:
    text = summary([*lines(), {"step": 5, "nDCG@10": 0.4}], 6, 138)
    assert text == "6 steps, 2.3 minutes: loss 2.00 → 0.40, 46 terms a query, 88 a document, as usual █▄▂▁▁"


def test_a_line_that_was_not_written_whole_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_log(path) == []
    path.write_text(json.dumps({"step": 1}) + "\n" + json.dumps({"step": 2})[:-1], encoding="utf-8")
    assert read_log(path) == [{"step": 1}]


def test_the_figure_shows_losses_terms_and_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = []
    monkeypatch.setattr("vocable.training.log.save_figure", lambda figure, path: figures.append(figure))
    draw([*lines(), {"step": 5, "nDCG@10": 0.4}], tmp_path / "training.png")
    loss, terms, gradient = figures[0].axes
    assert [(line.get_label(), line.get_ydata().tolist()) for line in loss.lines] == [
        ("base", [1.9 / step for step in range(1, 6)]),
        ("query regularizer", [0.1] * 5),
    ]
    assert [line.get_ydata().tolist() for line in terms.lines] == [[46.41] * 5, [88.24] * 5]
    assert [patch.get_y() for patch in terms.patches] == [5, 20]
    assert gradient.lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5]


def test_equal_logs_give_equal_files(tmp_path: Path, drawn: None) -> None:
    for name in ("a.png", "b.png"):
        draw(lines()[:1], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
