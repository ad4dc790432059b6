"""What commands import: one that needs none of the large libraries waits for none, and runs where they are missing."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import done
from tests.service.process import serving
from tests.test_layout import TRAINING
from vocable.errors import TRAIN
from vocable.service.client import Client

EVALUATION = {
    "name": "a",
    "dataset": "toy",
    "values": {"nDCG@10": 0.5},
    "per_query": {"nDCG@10": {"q": 0.5}},
    "convention": "trec_eval",
    "ties": "search",
}
RECIPE = """
model: {model}
data: {{examples: [{examples}]}}
training: {{steps: 2, batch_size: 4, save_every: 2, log_every: 1, guard: "off"}}
"""
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
BARE = *TRAIN, "pyarrow"  # missing in the bare installation
HEAVY = {*TRAIN, "matplotlib", "scipy.stats"}
# What a search of an index in a folder does without, and parts of NumPy that SciPy would import.
UNSEARCHED = {"bm25s", "fastapi", "ir_measures", "multiprocessing", "pandas", "pyarrow", "unittest"}
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
    """Return a folder with a collection and an index of it, made by the bare installation."""
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
        ["publish", "index", "-o", "site"],
        ["explain", "vocable-mini", "fast car", "A quick automobile"],
        ["explain", "index", "fast car"],
        ["evaluate", "vocable-mini", "--bm25", *evaluation, "-o", "model.json"],
        ["evaluate", "index", "--hybrid", *evaluation],
        ["compare", "model.json", "model.json"],
        ["check", "index"],
        ["analyze-postings", "index"],
    ]
    ends, modules, lines = run(folder, *commands, missing=BARE)
    assert ends == [0] * len(commands), lines
    assert not {*BARE} & modules
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
def test_a_command_leaves_no_objects_for_a_collection_at_the_end_of_its_process(base: Path) -> None:
    program = "import gc, sys, vocable.__main__ as start; start.main(); print(len(gc.get_objects()))"
    command = [sys.executable, "-c", program, "search", base / "index", "the old fox"]
    *_, left = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(left) < 1000


@pytest.mark.slow
def test_a_part_of_numpy_that_a_search_left_out_loads_when_it_is_used(base: Path) -> None:
    code = "from vocable.cli import main; main(['search', 'index', 'fast animal'])"
    code += "; import numpy; print(numpy.ma.masked_equal([1, 2], 2).sum(), numpy.f2py.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=base, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "1 numpy.f2py"


@pytest.mark.slow
def test_sources_give_the_same_hits_with_and_without_pyarrow(base: Path, tmp_path: Path) -> None:
    # The same texts in every format; the text of a page is in a file of its own.
    rows = list(DOCUMENTS.items())
    lines = "".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in rows)
    (tmp_path / "c.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.tsv").write_text("".join(f"{number}\t{text}\n" for number, text in rows), encoding="utf-8")
    (tmp_path / "pages").mkdir()
    for number, text in rows:
        (tmp_path / "pages" / f"{number}.txt").write_text(text, encoding="utf-8")
    sources = ["c.jsonl", "c.jsonl.gz", "c.tsv", "pages"]

    # Each source in an index of its own, by both installations.
    found = dict[str, list[str]]()
    for name, missing in (("bare", BARE), ("all", ())):
        commands: list[list[object]] = []
        for source in sources:
            place = f"{name}-{source}"
            asked = "--queries", base / "queries.jsonl", "--run", f"{place}.run"
            commands += [["index", "vocable-mini", source, "-o", place], ["search", place, *asked]]
        ends, _, said = run(tmp_path, *commands, missing=missing)
        assert ends == [0] * len(commands), said
        found[name] = [(tmp_path / f"{name}-{source}.run").read_text(encoding="utf-8") for source in sources]
    assert found["bare"] == found["all"]
    assert len(set(found["bare"][:3])) == 1
    hits = [run_of.splitlines() for run_of in found["bare"]]
    assert [len(run_of) for run_of in hits] == [3] * 4
    assert [line.split()[2] for line in hits[0]] == [line.split()[2].partition(".")[0] for line in hits[3]]


@pytest.mark.slow
def test_an_index_is_served_without_pyarrow(base: Path, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(__name__)", encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    served = serving(base / "index", environment={"PYTHONPATH": paths}, fresh=True)
    with served as process, Client(process.url) as client:
        [first, *_] = client.search("fast animal", k=3)
    assert first.document.id == "fox"


@pytest.mark.slow
def test_parquet_without_pyarrow_names_the_extra(base: Path, vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "c.parquet").write_bytes(b"never read")
    commands: list[list[object]] = [
        ["encode", "vocable-mini", base / "corpus.jsonl", "-o", tmp_path / "out"],
        ["encode", "vocable-mini", base / "corpus.jsonl", "-o", tmp_path / "out", "--shards", 2],
        ["index", "vocable-mini", "c.parquet", "-o", tmp_path / "out"],
        ["index", vectors, base / "corpus.jsonl", "-o", tmp_path / "out"],
        ["search", base / "index", "--queries", "c.parquet"],
        ["explain", "vocable-mini", "a", "b", "--wacky", "scores.parquet"],
        ["prune", vectors, "--max-terms", 3, "-o", tmp_path / "out"],
        ["export", vectors, "-o", tmp_path / "out", "--format", "ciff"],
        ["analyze-postings", vectors],
        ["select", "vocable-mini", "--dataset", f"beir:{base}", "-o", tmp_path / "out"],
        [
            "measure-wackiness",
            "vocable-mini",
            "--corpus",
            base / "corpus.jsonl",
            "--queries",
            base / "queries.jsonl",
            "-o",
            tmp_path / "out",
        ],
        ["ablate", "vocable-mini", f"beir:{base}", "-o", tmp_path / "out"],
    ]
    ends, _, lines = run(tmp_path, *commands, missing=BARE)
    assert [line for line in lines if "parquet]'" not in line] == []
    assert ends == [2] * len(commands)
    assert len(lines) == len(commands)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []


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
        ["merge", "vocable-mini", "vocable-mini", "-o", "adapted"],
        ["convert", "vocable-mini", "-o", "adapted"],
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
NEEDS_TRAIN = "align analyze_logits calibrate expand_vocabulary export_model fuse inspect make_inference_free merge"
NEEDS_TRAIN += " mine pretrain provenance rescale teacher_scores train_tokenizer train_vocabulary transfer tune unfuse"


@pytest.mark.slow
def test_public_names_that_need_the_extra() -> None:
    command = [sys.executable, "-c", WITHOUT + NAMES, json.dumps([*TRAIN])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == NEEDS_TRAIN.split()


def test_the_package_alone_imports_only_the_standard_library() -> None:
    code = "import sys; before = {*sys.modules}; import vocable; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names == {"vocable"}


def test_errors_and_finished_outputs_need_no_pytorch(
    capsys: pytest.CaptureFixture[str], model: str, toy_texts: list[str], dataset: str, tmp_path: Path
) -> None:
    examples = str(tmp_path / "pairs.jsonl")
    pairs = [{"query": text[:20], "positive": text, "negatives": ["a"]} for text in sorted(set(toy_texts))[::9]]
    Path(examples).write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(model=model, examples=examples), encoding="utf-8")
    (tmp_path / "texts.txt").write_text("The fox sleeps by day.\nThe owl reads at night.\n", encoding="utf-8")
    pretrain = ["pretrain", model, tmp_path / "texts.txt", "-o", tmp_path / "pretrained", "--steps", 2]
    pretrain += ["--batch-size", 1, "--held-out", 0, "--log-every", 1]
    finished: list[list[object]] = [
        ["rescale", model, "-o", tmp_path / "rescaled", "--factor", 2],
        ["merge", model, tmp_path / "rescaled", "-o", tmp_path / "merged"],
        pretrain,
        ["train", tmp_path / "recipe.yaml", "-o", tmp_path / "trained"],
        ["mine", model, examples, "-o", tmp_path / "mined.jsonl", "--negatives", 1, "--device", "cpu"],
        ["teacher-scores", model, examples, "-o", tmp_path / "scored.jsonl"],
        ["measure-wackiness", model, "bm25+rm3", "--corpus", dataset, "--queries", dataset, "-o", tmp_path / "wacky"],
        ["ablate", model, dataset, "-o", tmp_path / "ablated", "--thresholds", 1, "--draws", 2],
    ]
    for command in finished:
        assert "written: " in done(capsys, *command)
    failing: list[list[object]] = [
        [*finished[0][:-1], 3],
        ["rescale", "no-model", "-o", "out", "--factor", 2],
        ["inspect", "no-model"],
        ["merge", model, "no-model", "-o", "out"],
        ["export-model", "no-model", "-o", "out"],
        ["calibrate", model, "none.txt", "-o", "out", "--shift", 1],
        ["pretrain", model, "none.txt", "-o", "out", "--steps", 1],
        ["make-inference-free", model, "-o", "out", "--texts", "none.txt"],
        ["analyze-logits", model, "none.txt"],
        ["mine", model, "none.jsonl", "-o", "out"],
        ["mine", model, examples, "--corpus", "beir:none", "-o", "out"],
        ["teacher-scores", model, "none.jsonl", "-o", "out"],
        ["tune", model, "none", "-o", "out"],
        ["measure-wackiness", model, "--corpus", "none.jsonl", "--queries", "none.tsv", "-o", "out"],
        ["ablate", model, "beir:none", "-o", "out"],
        ["train", tmp_path / "recipe.yaml", "-o", tmp_path / "trained", "--override", "training.steps=3"],
    ]
    ends, modules, lines = run(tmp_path, *finished, *failing)
    assert ends == [0] * len(finished) + [2] * len(failing), lines
    assert len(lines) == len(failing)
    assert not {"torch", "transformers", "sentence_transformers"} & modules
