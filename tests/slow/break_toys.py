"""Toys of `break.py`: a model, a corpus and what the verbs make of them; when two results are the same; outcomes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from preloaded import LIMIT, USED, Command, Ran, run
from random_model import write_toy_model

import vocable as vo
from tests.tuning.small import make_small, write_corpus
from vocable.core.folders import COMMIT
from vocable.data import Document
from vocable.encoding.vectors import read_vectors
from vocable.engines.folder import OURS, _checksum

TUNED_TEXTS = 60  # documents of a tuning
# Keys of values that differ from one run to the next.
TIMES = ("seconds", "_second", "_ms", "seconds_per_step", "minutes", "gigabytes")
REGULARIZERS = {  # both keep a state of their own
    "document": {"name": "df_flops", "weight": 0.3},
    "query": {"name": "df_flops", "weight": 0.1},
}
BAD = ("WRONG", "TRACEBACK", "HANG", "CRASH")


class Case(NamedTuple):
    """Something that goes wrong; `run` is given an empty folder and returns the outcome and what to say of it."""

    group: str
    name: str
    run: Callable[[Path], tuple[str, str]]


def judge(ran: Ran, *, says: Sequence[str] = (), right: Callable[[], bool] | None = None) -> tuple[str, str]:
    """The outcome of a command that has to be refused in words that are among `says`, or, with `right`, may succeed."""
    line = ran.err.strip().splitlines()
    if ran.status is None:
        return "HANG", f"not done after {LIMIT} s"
    if ran.status < 0:
        return "CRASH", f"signal {-ran.status}"
    if "Traceback" in ran.err or "internal error" in ran.err or ran.status not in (0, 2):
        return "TRACEBACK", line[-1] if line else f"status {ran.status}"
    if ran.status == 0:
        ok = right is not None and right()
        return "right" if ok else "WRONG", "" if ok else f"status 0: {ran.out.strip()[:100]!r}"
    missing = [word for word in says if word not in ran.err]
    if len(line) != 1 or not line[0].startswith("vocable: ") or missing:
        return (
            "WRONG",
            f"does not say {missing}: {ran.err.strip()[:300]!r}" if missing else f"{len(line)} lines: {line}",
        )
    return "refused", line[0]


def to(command: list[object], output: Path) -> list[object]:
    """Return the command with an output."""
    return [*command, "-o", output]


def changed_commit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the commit of an index as a person would who knows its checksum."""
    file = folder / COMMIT
    values = json.loads(file.read_text())
    del values["crc32"]
    change(values)
    file.write_text(json.dumps(values | {"crc32": _checksum(values)}))


class Toys:
    """A toy model and what the verbs make of it, in one folder: made once, and copied where a case changes it."""

    def __init__(self, folder: Path) -> None:
        make_small()
        self.folder = folder
        self.texts = [
            f"The {name} of chapter {i}: reads, indexes and forgets {name}s."
            for i in range(15)
            for name in ("list", "vector", "query", "index")
        ]
        self.model = folder / "model"
        self._made(partial(write_toy_model, self.model, self.texts))
        self.corpus, self.pairs, self.beir = folder / "corpus.jsonl", folder / "pairs.jsonl", folder / "beir"
        self._write(self.corpus, [{"_id": f"d{i}", "text": text} for i, text in enumerate(self.texts)])
        self.pages = write_corpus(folder / "pages.jsonl", self.texts, TUNED_TEXTS)
        rows = [
            {"query": text[:26], "positive": text, "negatives": [f"Nothing of {i} at all."]}
            for i, text in enumerate(self.texts)
        ]
        self._write(self.pairs, rows)
        self.beir.mkdir()
        shutil.copy(self.corpus, self.beir)
        self._write(self.beir / "queries.jsonl", [{"_id": f"q{i}", "text": self.texts[5 * i][:22]} for i in range(9)])
        judged = "".join(f"q{i}\td{5 * i}\t1\n" for i in range(9))
        (self.beir / "qrels").mkdir()
        (self.beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
        training: dict[str, Any] = {
            "regularizers": REGULARIZERS,
            "steps": 8,
            "batch_size": 8,
            "save_every": 2,
            "log_every": 1,
            "learning_rate": 1e-3,
            "dropout": 0.1,
            "warmup_share": 0.95,  # no step counts as alike by chance, whose checkpoint the guard would leave out
        }
        recipe = {"model": str(self.model), "data": {"examples": [str(self.pairs)]}, "training": training}
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(json.dumps(recipe))
        for name, arguments in self.stored.items():
            self._made(to(arguments, folder / name))
        self.store = folder / "store"  # an index that has changed: two segments, and documents that are gone
        self._made(partial(self._change_store, folder / "index"))
        self.postings, self.words = folder / "postings", folder / "words"  # indexes that are files
        self._made(self._save_indexes)

    def _change_store(self, index: Path) -> None:
        shutil.copytree(index, self.store)
        with vo.open_index(self.store) as opened:
            opened.delete(["d3", "d4"])
            opened.add([Document("more", "A list of lists.")])

    def _save_indexes(self) -> None:
        vectors = read_vectors(self.folder / "vectors")
        vo.ExactIndex(vectors.matrix, vectors.ids, vectors.meta).save(self.postings)
        vo.BM25Index(self.texts).save(self.words)

    def _made(self, command: Command) -> None:
        """Run a command that has to succeed, in a fork: no thread may be started here."""
        ran = run(self.folder, command)
        if ran.status:
            raise RuntimeError(ran.err)

    @staticmethod
    def _write(path: Path, rows: list[dict[str, Any]]) -> None:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    @property
    def stored(self) -> dict[str, list[object]]:
        """Commands whose results other cases damage or read."""
        return {
            "index": ["index", self.model, self.corpus, "--bm25"],
            "vectors": ["encode", self.model, self.corpus],
            "expanded": ["expand-vocabulary", self.model, "--texts", self.corpus, "--size", 20],
            "values.json": ["evaluate", self.model, "--dataset", f"beir:{self.beir}"],
        }

    @property
    def writers(self) -> dict[str, list[object]]:
        """A command of each verb that writes, without its output."""
        return {
            **self.stored,
            "prune": ["prune", self.folder / "vectors", "--max-terms", 3],
            "mine": ["mine", self.model, self.pairs, "--corpus", self.corpus, "--with-scores", "--negatives", 2],
            "teacher-scores": ["teacher-scores", self.model, self.pairs],
            "make-testset": ["make-testset", self.pairs, "--queries", 9, "--clusters", 3, "--difficulty", "plain"],
            "rescale": ["rescale", self.model, "--factor", 2],
            "transfer": ["transfer", self.model, "--target", self.model, "--init", "mean", "--bias", "keep"],
            "vocabulary": ["train-vocabulary", self.corpus, "--size", 60],
            "pretrain": ["pretrain", self.model, self.corpus, "--steps", 6, "--save-every", 2, "--max-length", 16],
            "calibrate": ["calibrate", self.model, self.corpus, "--activation-rate", 0.1],
            "inference-free": ["make-inference-free", self.model, "--texts", self.corpus],
            "train": ["train", self.recipe],
            "tune": ["tune", self.model, self.pages],
            "wackiness": [
                "measure-wackiness",
                self.model,
                "--corpus",
                f"beir:{self.beir}",
                "--queries",
                f"beir:{self.beir}",
                "--bootstrap",
                3,
                "-k",
                5,
            ],
            "removal": ["ablate", self.model, f"beir:{self.beir}", "--thresholds", "2,5", "--draws", 2],
        }


def same(one: Path, other: Path) -> str:
    """Return the first difference of two results, "" if there is none; durations and locks do not count."""
    if (one / COMMIT).exists() and (other / COMMIT).exists():
        return next((name for name, value in _index(one).items() if value != _index(other)[name]), "")
    if one.is_file() or not one.exists():
        same_bytes = one.exists() and other.exists() and _content(one) == _content(other)
        return "" if same_bytes else one.name
    names = [
        sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.name != ".lock") for root in (one, other)
    ]
    if names[0] != names[1]:
        return f"files {set(names[0]) ^ set(names[1])}"
    files = [name for name in names[0] if (one / name).is_file()]
    return next((name for name in files if _content(one / name) != _content(other / name)), "")


def _index(folder: Path) -> dict[str, object]:
    """Return what an index has, whose files are numbered otherwise when its making was interrupted."""
    commit = json.loads((folder / COMMIT).read_text())
    records, settings = commit["segments"], cast(Any, _timeless(commit["settings"]))
    for name in ("parts", "last_id"):
        settings["progress"].pop(name)
    return {
        "settings": settings,
        "segments": sorted((folder / record["name"]).read_bytes() for record in records),
        "deletions": [(folder / record["gone"]).read_bytes() for record in records if record["gone"]],
        # The next writer removes segments that no commit names: their removal may not outlast a loss of power.
        "files": {path.name for path in folder.iterdir() if not OURS.fullmatch(path.name)} - {"lock"},
    }


def _content(path: Path) -> object:
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes() if path.suffix not in (".png", ".svg", ".html") else None
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return [_timeless(json.loads(text)) for text in texts]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if not key.endswith(TIMES) and key != "output"}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def leftovers(folder: Path, *expected: str) -> str:
    """Return the names in a folder besides the streams of a command and the expected files."""
    beside = {f".{name}.settings.json" for name in expected}  # what a result that is a file was made with
    return " ".join(sorted({path.name for path in folder.iterdir()} - {*USED, *expected, *beside}))
