"""Two processes: they stop together, for one reason, and what is measured is measured once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.test_processes import start_two
from vocable.encoder.load import load

# What each of them does: argv[1] is a recipe, argv[2] a folder for the outputs and for what each has to say.
SCRIPT = """
import json, sys
from dataclasses import replace
from pathlib import Path

from vocable.cli import silence

silence()  # before the libraries are imported
import torch

torch.set_num_threads(1)
from vocable.encoder.load import load
from vocable.errors import CollapseError, DataError
from vocable.training import processes, trainer
from vocable.training.batch_statistics import Monitor
from vocable.training.recipe import read_recipe
from vocable.training.train import train

recipe, folder = Path(sys.argv[1]), Path(sys.argv[2])
processes.join()
rank = 0 if processes.is_first() else 1
said, measured = [], []


def spoil(who):  # one process alone sees figures of a collapse
    def see(self, *arguments):
        seen(self, *arguments)
        if rank == who:
            self.newest = replace(self.newest, loss=1e6)

    Monitor.see = see


def counted(*arguments, **options):
    evaluation = evaluate_system(*arguments, **options)
    measured.append(Path(arguments[1]).name)
    return evaluation


def reason(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except (CollapseError, DataError) as error:
        return f"{type(error).__name__}: {error}"


seen, evaluate_system = Monitor.see, trainer.evaluate_system
trainer.evaluate_system = counted
for who in (0, 0, 1):  # the second time it is the folder that says so
    spoil(who)
    said.append(reason(train, read_recipe(recipe), folder / f"spoiled-{who}"))
Monitor.see = seen
results = train(recipe, folder / "runs", variants=["one", "two"], overrides=["training.steps=1"])
missing = ["training.steps=1", "evaluation.datasets=[beir:nowhere]"]
said.append(reason(train, recipe, folder / "missing", variants=["one"], overrides=missing))
alone = {
    name: evaluate_system(load(folder / "runs" / name), f"beir:{folder / 'toy'}", ["nDCG@10"]).values
    for name in results
}
found = {"said": said, "alone": alone, "measured": measured, "results": results.to_json()["runs"]}
(folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
"""


@pytest.fixture
def recipe(backbones: dict[str, Path], toy_texts: list[str], tmp_path: Path) -> Path:
    texts = sorted(set(toy_texts))[:40]
    rows = [{"query": f"{i} {text}", "positive": f"chapter {i} {text}"} for i, text in enumerate(texts)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    lines = {
        "corpus.jsonl": [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)],
        "queries.jsonl": [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts[:4])],
        "qrels.tsv": ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(4))],
    }
    (tmp_path / "toy").mkdir()
    for name, content in lines.items():
        (tmp_path / "toy" / name).write_text("\n".join(content), encoding="utf-8")
    values = {
        "model": str(backbones["bert"]),
        "data_folder": str(tmp_path),
        "data": {"examples": ["pairs.jsonl"]},
        "training": {"steps": 14, "batch_size": 4, "save_every": 4, "log_every": 1},
        "evaluation": {"datasets": ["beir:toy"], "every": None},
        "variants": {"one": {}, "two": {"set": {"training.learning_rate": 1e-3}}},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_they_stop_together_and_measure_once(recipe: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    two = start_two(script, recipe, tmp_path)
    said = [process.communicate(timeout=300) for process in two]
    assert [process.returncode for process in two] == [0, 0], said
    assert said[1] == ("", "")
    assert said[0][0] == ""
    assert all("of a probe of training queries" in line for line in said[0][1].splitlines())
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    assert first["said"] == second["said"]
    stopped, again, unseen, missing = first["said"]
    assert stopped.startswith("CollapseError: stopped at step 10, hopeless scores: ")
    assert again == stopped
    assert not (tmp_path / "spoiled-0").exists()
    assert unseen is None  # what the second alone sees is not so
    assert load(tmp_path / "spoiled-1")
    assert missing.startswith("DataError: ")
    assert "nowhere" in missing
    # Trained by both, measured by the first, known to both.
    assert (first["measured"], second["measured"]) == (["toy", "toy"], [])
    assert first["results"] == second["results"]
    assert first["results"] == json.loads((tmp_path / "runs" / "results.json").read_text(encoding="utf-8"))
    for name in ("one", "two"):
        assert first["results"][name]["measured"]["nDCG@10"] == pytest.approx(second["alone"][name]["nDCG@10"])
