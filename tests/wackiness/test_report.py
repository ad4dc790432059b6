from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard
from matplotlib.colors import to_rgba
from sentence_transformers import SparseEncoder

from vocable.core.figures import ACROSS, add_legend, empty_panels, save_figure
from vocable.core.storage import read_record
from vocable.errors import ArgumentError, ModelError
from vocable.wackiness.ablation_report import (
    WACKY_COLOR,
    AblatedSearch,
    AblationReport,
    DatasetAblation,
    ThresholdResult,
    ablation_figure,
    ablation_tables,
    write_ablation,
)
from vocable.wackiness.report import write_card


def test_a_table_says_what_each_removal_did() -> None:
    first, second = ablation_tables(removed("toy"))
    assert first.title == "toy, 7 queries, query expansions"
    whole = ["0", "0", "0.0%", "0.0%", "0.8000", "–", "–", "–", "–"]
    inside = ["5", "5", "50.0%", "50.0%", "0.5500", "0.500", "0.6000", "0.4000–0.8000", "inside"]
    below = ["1,000", "5", "50.0%", "50.0%", "0.2000", "0.500", "0.6000", "0.4000–0.8000", "below"]
    assert [row[:-1] for row in first.rows] == [whole, inside, below]
    assert [row[-1].split()[0] for row in first.rows] == ["–", "-0.0500", "-0.4000"]
    assert (first.header[4], second.header[4]) == ("RR@10", "R@10")
    assert [row[-2] for row in second.rows] == ["–", "inside", "below"]


def test_what_comes_from_data_is_shown_and_not_read(tmp_path: Path) -> None:
    found = [removed("<script>a|b"), removed("b")]
    report = AblationReport({"model": "<b>"}, found)
    write_ablation(tmp_path, report)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;a|b" in page
    assert "<td>&lt;b&gt;</td>" in page
    assert read_record(tmp_path / "results.json", AblationReport) == report
    assert (tmp_path / "ablation.md").read_text(encoding="utf-8").count("| removed |") == 4


def outcome(value: float) -> AblatedSearch:
    values = {"RR@10": value, "R@10": value / 2}
    per_query = {name: {"q": one} for name, one in values.items()}
    return AblatedSearch(5, 0.5, 3, values, {"RR@10": 0.5, "R@10": 0.5}, per_query)


def removed(dataset: str) -> DatasetAblation:
    random, full = tuple(map(outcome, (0.5, 0.6, 0.7))), {"RR@10": 0.8, "R@10": 0.4}
    points = ThresholdResult.of(5, outcome(0.55), random, full), ThresholdResult.of(1000, outcome(0.2), random, full)
    return DatasetAblation(dataset, "query", 7, full, points)


def test_there_is_a_panel_for_each_dataset_and_measure() -> None:
    figure = ablation_figure([removed("a"), removed("b")])
    assert [(axes.get_title(), axes.get_ylabel()) for axes in figure.axes] == [
        ("a", "RR@10"),
        ("a", "R@10"),
        ("b", "RR@10"),
        ("b", "R@10"),
    ]
    for axes, share in zip(figure.axes, [1, 0.5, 1, 0.5], strict=True):
        whole, mean, wacky, inside, outside = (np.asarray(line.get_xydata()) for line in axes.get_lines())
        assert whole[:, 1].tolist() == [0.8 * share] * 2
        np.testing.assert_allclose(mean, [[5, 0.6 * share], [1000, 0.6 * share]])
        assert wacky.tolist() == [[5, 0.55 * share], [1000, 0.2 * share]] == [*inside.tolist(), *outside.tolist()]
        faces = [to_rgba(line.get_markerfacecolor()) for line in axes.get_lines()[3:]]
        assert faces == [to_rgba("white"), to_rgba(WACKY_COLOR)]
        band = axes.collections[0].get_paths()[0].get_extents()
        np.testing.assert_allclose([band.y0, band.y1], [0.4 * share, 0.8 * share])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "1,000\n(5 here)"]


def test_the_file_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        save_figure(ablation_figure([removed("a $x$ <b>")]), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    with pytest.raises(ArgumentError, match="nothing to draw"):
        ablation_figure([])


@pytest.mark.parametrize(
    "names", [["nothing removed", "95 % of random removals"] * 2, ["a long name of a system " * 5] * 3]
)
def test_a_legend_fits_a_single_panel(names: list[str]) -> None:
    figure = empty_panels(1, ACROSS)
    lines = [figure.axes[0].plot([0, 1], label=name)[0] for name in names]
    add_legend(figure, lines, names, title="labels: qk/dk")
    figure.draw_without_rendering()
    [legend] = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert [text.get_text() for text in legend.get_texts()] == names


SETTINGS: dict[str, Any] = {
    "role": "query",
    "queries": "beir:/home/me/data/scifact",
    "corpus": "beir:/home/me/data/scifact",
    "limit": None,
    "k": 100,
    "idf": "log",
    "bins": 100,
    "whole_vocabulary": False,
    "special": True,
    "splitter": "any",
}
FINDING = {"w_auc": 0.91234, "std": 0.0049, "scored_terms": 12345}


def results(card: Path) -> list[tuple[str, str, str, float]]:
    data: Any = ModelCard.load(card).data
    return [(one.dataset_name, one.dataset_config, one.metric_type, one.metric_value) for one in data.eval_results]


def test_a_card_gets_the_results_and_keeps_the_rest(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_bytes("---\r\nlicense: apache-2.0\r\n---\r\n\r\n# Mon modèle\r\n".encode())
    assert write_card(tmp_path, FINDING, SETTINGS) == card
    of = "scifact", "queries of scifact"
    assert results(card) == [(*of, "w_auc", 0.91234), (*of, "std", 0.0049), (*of, "scored_terms", 12345)]
    text = card.read_bytes().decode()
    assert text.startswith("---\r\nlicense: apache-2.0\r\nmodel-index:")
    assert text.endswith("\r\n---\r\n\r\n# Mon modèle\r\n")
    assert ModelCard.load(card).data.to_dict()["model-index"][0]["name"] == tmp_path.name
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_a_measurement_takes_the_place_of_the_same_one_alone(tmp_path: Path) -> None:
    write_card(tmp_path, FINDING, SETTINGS)
    card = tmp_path / "README.md"
    card.write_text(card.read_text(encoding="utf-8") + "\n## Thanks\n", encoding="utf-8")
    documents = {"role": "document", "queries": None, "limit": 1000, "k": 10}
    write_card(tmp_path, {"w_auc": None, "std": None, "scored_terms": 0}, SETTINGS | documents)
    write_card(tmp_path, FINDING | {"w_auc": 0.25}, SETTINGS | {"k": 10})
    for _ in range(2):
        write_card(tmp_path, FINDING | {"w_auc": 0.5}, SETTINGS)
    found = [(config, metric, value) for _, config, metric, value in results(card) if metric != "std"]
    of = "queries of scifact"
    assert sorted(found) == [
        ("1,000 documents", "scored_terms", 0),
        (of, "scored_terms", 12345),
        (of, "scored_terms", 12345),
        (of, "w_auc", 0.25),
        (of, "w_auc", 0.5),
    ]
    assert card.read_text(encoding="utf-8").endswith("\n## Thanks\n")


def test_the_host_library_keeps_it_with_the_model(toy_model: SparseEncoder, tmp_path: Path) -> None:
    toy_model.save_pretrained(str(tmp_path / "one"))
    before = (tmp_path / "one" / "README.md").read_text(encoding="utf-8")
    write_card(tmp_path / "one", FINDING, SETTINGS)
    text = (tmp_path / "one" / "README.md").read_text(encoding="utf-8")
    assert text.partition("\n---\n")[2] == before.partition("\n---\n")[2]
    SparseEncoder(str(tmp_path / "one"), device="cpu").save_pretrained(str(tmp_path / "two"))
    assert results(tmp_path / "two" / "README.md")[0][2:] == ("w_auc", 0.91234)


def test_a_card_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="none: no such folder"):
        write_card(tmp_path / "none", FINDING, SETTINGS)
    (tmp_path / "README.md").write_bytes(b"\xff\xfe#")
    with pytest.raises(ModelError, match=r"README\.md: cannot be read"):
        write_card(tmp_path, FINDING, SETTINGS)
    assert (tmp_path / "README.md").read_bytes() == b"\xff\xfe#"
