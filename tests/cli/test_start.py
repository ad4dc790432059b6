"""What commands import: one that needs none of the large libraries waits for none, and runs where they are missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layout import TRAINING
from vocable.errors import TRAIN

EVALUATION = {
    "name": "a",
    "dataset": "toy",
    "values": {"nDCG@10": 0.5},
    "per_query": {"nDCG@10": {"q": 0.5}},
    "convention": "trec_eval",
    "ties": "search",
}
# Hides the missing packages from a process.
WITHOUT = """
import json, sys
class Without:
    def __init__(self, finder): self.finder = finder
    def __getattr__(self, name): return getattr(self.finder, name)
    def find_spec(self, name, *others): return None if name in missing else self.finder.find_spec(name, *others)
missing = json.loads(sys.argv[1])
sys.meta_path[:] = map(Without, sys.meta_path)
"""
# Runs commands in one process; prints their exit statuses, and the imported modules.
COMMANDS = """
from vocable.cli import main
ends = [main(command) for command in json.loads(sys.argv[2])]
print("\\n" + json.dumps([ends, [*sys.modules]]))
"""
HEAVY = {*TRAIN, "matplotlib", "scipy.stats"}
# What a search of an index in a folder does without, and parts of NumPy that SciPy would import.
UNSEARCHED = {"bm25s", "fastapi", "ir_measures", "multiprocessing", "numba", "pandas", "pyarrow", "unittest"}
UNSEARCHED |= {"numpy.f2py.crackfortran", "numpy.ma.core"}


def run(folder: Path, *commands: list[object], missing: tuple[str, ...] = ()) -> tuple[list[int], set[str], list[str]]:
    """Run commands in a folder; return their statuses, the imported modules, and the lines on stderr."""
    words = json.dumps([[*map(str, command)] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + COMMANDS, json.dumps(missing), words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    ends, modules = json.loads(done.stdout.splitlines()[-1])
    return ends, {*modules}, done.stderr.splitlines()


@pytest.mark.slow
def test_commands_without_a_model_import_none_of_the_large_libraries(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(EVALUATION), encoding="utf-8")
    commands: list[list[object]] = [
        ["--help"],
        ["recipes"],
        ["compare", tmp_path / "one.json"],
        ["analyze-postings", vectors],
        ["analyze-weights", vectors],
        ["prune", vectors, "--max-terms", 3, "-o", tmp_path / "small"],
        ["search", "http://127.0.0.1:9", "a query"],  # of a service; there is none
    ]
    ends, modules, _ = run(tmp_path, *commands)
    assert ends == [0, 0, 0, 0, 0, 0, 2]
    assert not HEAVY & modules


DOCUMENTS = {"fox": "The quick brown fox jumps.", "dog": "A lazy dog sleeps.", "cat": "Cats hunt mice at night."}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a collection and an index of it, made without the packages of the extra `train`."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "qrels").mkdir()
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tfox\t1\n", encoding="utf-8")
    records = {"corpus.jsonl": DOCUMENTS, "queries.jsonl": {"q": "fast red animal"}, "more.jsonl": {"owl": "An owl."}}
    for name, texts in records.items():
        lines = [json.dumps({"_id": i, "text": text, "letters": len(i)}) + "\n" for i, text in texts.items()]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    pairs = [{"query": f"animal {number}", "positive": f"text {number}"} for number in range(4)]
    (folder / "log.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    evaluation = ["--dataset", "beir:.", "-m", "nDCG@10", "--time-queries", 0]
    commands: list[list[object]] = [
        ["index", "vocable-mini", "corpus.jsonl", "-o", "index", "--bm25"],
        ["index", "vocable-mini-doc", "corpus.jsonl", "-o", "lookup"],
        ["add", "index", "more.jsonl"],
        ["search", "index", "fast animal", "--explain", "--filter", "letters=3"],
        ["search", "lookup", "fast animal"],
        ["delete", "index", "owl"],
        ["encode", "vocable-mini", "corpus.jsonl", "-o", "vectors"],
        ["explain", "vocable-mini", "fast car", "A quick automobile"],
        ["explain", "index", "fast car"],
        ["evaluate", "vocable-mini", "--bm25", *evaluation, "-o", "model.json"],
        ["evaluate", "index", "--hybrid", *evaluation],
        ["compare", "model.json", "model.json"],
    ]
    ends, modules, lines = run(folder, *commands, missing=(*TRAIN,))
    assert ends == [0] * len(commands), lines
    assert not TRAIN & modules
    return folder


@pytest.mark.slow
def test_an_index_in_place_of_a_model_is_told_before_libraries_are_imported(base: Path) -> None:
    commands: list[list[object]] = [
        ["inspect", "index"],
        ["tune", "index", ".", "-o", "x"],
    ]
    ends, modules, lines = run(base, *commands)
    assert ends == [2, 2]
    assert not HEAVY & modules
    assert [("no model in this folder" in line, "of the model vocable-mini" in line) for line in lines] == [
        (True, True)
    ] * 2


@pytest.mark.slow
def test_search_imports_what_it_needs(base: Path) -> None:
    ends, modules, _ = run(base, ["search", "index", "fast animal", "-k", 1])
    assert ends == [0]
    assert "onnxruntime" in modules
    assert not (HEAVY | UNSEARCHED) & modules
    rooms = {module.split(".")[1] for module in modules if module.startswith("vocable.")}
    assert not rooms & {name for names in TRAINING for name in names}


@pytest.mark.slow
def test_a_part_of_numpy_that_a_search_left_out_loads_when_it_is_used(base: Path) -> None:
    code = "from vocable.cli import main; main(['search', 'index', 'fast animal'])"
    code += "; import numpy; print(numpy.ma.masked_equal([1, 2], 2).sum(), numpy.f2py.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=base, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "1 numpy.f2py"


@pytest.mark.slow
def test_verbs_that_need_more_than_the_base_installation_name_the_extra(base: Path) -> None:
    evaluation = ["--dataset", "beir:."]
    commands: list[list[object]] = [
        ["train", "my-pairs", "-o", "trained"],
        ["pretrain", "vocable-mini", "corpus.jsonl", "-o", "trained", "--steps", 1],
        ["mine", "vocable-mini", "queries.jsonl", "-o", "mined.jsonl"],
        ["teacher-scores", "vocable-mini", "queries.jsonl", "-o", "scored.jsonl"],
        ["make-testset", "log.jsonl", "-o", "test-set", "--queries", 1, "--clusters", 2],
        ["inspect", "vocable-mini"],
        ["rescale", "vocable-mini", "-o", "adapted", "--factor", "auto"],
        ["transfer", "vocable-mini", "--target", "vocable-mini", "-o", "adapted"],
        ["expand-vocabulary", "vocable-mini", "--texts", "corpus.jsonl", "-o", "adapted"],
        ["calibrate", "vocable-mini", "corpus.jsonl", "-o", "adapted", "--activation-rate", 0.1],
        ["make-inference-free", "vocable-mini", "--texts", "corpus.jsonl", "-o", "adapted"],
        ["train-vocabulary", "corpus.jsonl", "-o", "adapted", "--size", 100],
        ["analyze-logits", "vocable-mini", "corpus.jsonl"],
        ["export-model", "vocable-mini", "-o", "exported"],
        ["index", "vocable-mini", "corpus.jsonl", "-o", "dense", "--dense", "some-model"],
        ["index", "vocable-mini", "hf:some-data", "-o", "published"],
        ["evaluate", "query2doc:some-model", *evaluation],
        ["evaluate", "vocable-mini", "--runtime", "torch", *evaluation],
    ]
    ends, _, lines = run(base, *commands, missing=(*TRAIN,))
    assert [line for line in lines if "pip install 'vocable[train]'" not in line] == []
    assert ends == [2] * len(commands)
    assert len(lines) == len(commands)


NAMES = """
import vocable
from vocable.errors import MissingExtraError
for name in vocable.__all__:
    try:
        getattr(vocable, name)
    except MissingExtraError:
        print(name)
"""
NEEDS_TRAIN = "align analyze_logits calibrate expand_vocabulary export_model fuse inspect make_inference_free mine"
NEEDS_TRAIN += " pretrain provenance rescale teacher_scores train_tokenizer train_vocabulary transfer tune unfuse"


@pytest.mark.slow
def test_public_names_that_need_the_extra() -> None:
    command = [sys.executable, "-c", WITHOUT + NAMES, json.dumps([*TRAIN])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == NEEDS_TRAIN.split()


def test_the_package_alone_imports_only_the_standard_library() -> None:
    code = "import sys; before = {*sys.modules}; import vocable; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names == {"vocable"}
