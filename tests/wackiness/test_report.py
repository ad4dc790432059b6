from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SparseEncoder

from vocable.errors import ModelError
from vocable.wackiness.measure import WackinessRecord
from vocable.wackiness.report import WackinessReport, write_card

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


def test_sentence_transformers_keeps_the_card_with_the_model(toy_model: SparseEncoder, tmp_path: Path) -> None:
    toy_model.save_pretrained(str(tmp_path / "one"))
    before = (tmp_path / "one" / "README.md").read_text(encoding="utf-8")
    write_card(tmp_path / "one", FINDING, SETTINGS)
    text = (tmp_path / "one" / "README.md").read_text(encoding="utf-8")
    assert text.partition("\n---\n")[2] == before.partition("\n---\n")[2]
    SparseEncoder(str(tmp_path / "one"), device="cpu").save_pretrained(str(tmp_path / "two"))
    assert results(tmp_path / "two" / "README.md")[0][2:] == ("w_auc", 0.91234)


def test_a_card_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        write_card(tmp_path / "none", FINDING, SETTINGS)
    (tmp_path / "README.md").write_bytes(b"\xff\xfe#")
    with pytest.raises(ModelError, match=r"README\.md"):
        write_card(tmp_path, FINDING, SETTINGS)
    assert (tmp_path / "README.md").read_bytes() == b"\xff\xfe#"


@pytest.mark.parametrize(("absent", "said"), [(0, False), (5, False), (6, True), (10, True)])
def test_a_report_says_when_most_terms_are_in_no_document(absent: int, said: bool) -> None:
    record: WackinessRecord = {
        "name": "mine",
        "w_auc": 0.9,
        "std": None,
        "terms": 30,
        "scored_terms": 10,
        "absent_terms": absent,
        "active_terms": 4.0,
        "expansions": 2.0,
        "curve": [1.0, 0.8],
        "wackiest": [],
        "kinds": [],
        "sensitivity": [],
    }
    lines = [part for part in WackinessReport({}, [record]).table() if isinstance(part, str)]
    assert any(f"mine: {absent} of 10 scored terms" in line for line in lines) == said
