"""What a command imports before it answers: one that runs no model waits for no library that runs models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EVALUATION = {
    "name": "a",
    "dataset": "toy",
    "values": {"nDCG@10": 0.5},
    "per_query": {"nDCG@10": {"q": 0.5}},
    "convention": "trec_eval",
    "ties": "search",
}
SCRIPT = """
import json, sys
from vocable.cli import main
status = main(sys.argv[1:])
heavy = "torch", "transformers", "sentence_transformers", "sklearn", "matplotlib", "scipy.stats"
print("\\n" + json.dumps([status, [name for name in heavy if name in sys.modules]]))
"""


NEEDS_NONE = ["--help", "recipes", "compare", "analyze-postings", "analyze-weights", "prune", "search"]


@pytest.mark.parametrize("command", NEEDS_NONE)
def test_a_command_without_a_model_imports_none_of_the_large_libraries(
    command: str, vectors: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.json").write_text(json.dumps(EVALUATION), encoding="utf-8")
    files = {"compare": [tmp_path / "one.json"], "analyze-postings": [vectors]}
    files["analyze-weights"] = [vectors]
    files["prune"] = [vectors, "--max-terms", 3, "-o", tmp_path / "small"]
    files["search"] = ["http://127.0.0.1:9", "a query"]  # of a service; there is none
    arguments = [command, *map(str, files.get(command, []))]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout.splitlines()[-1]) == [2 * (command == "search"), []], done.stdout + done.stderr
