"""Fixtures of all tests: toy texts and backbones.

What takes seconds to be imported is imported where it is used: the process that hands tests out to others does without.
"""

from __future__ import annotations

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before the first import that reads it: no test may wait for a network
os.environ.setdefault("TRITON_INTERPRET", "1")  # likewise: kernels run on the processor; 0 tests them on CUDA

import random
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import jinja2
import pytest

from tests.toys import write_corpus
from vocable.core import figures

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast

    from vocable.data import Document

gc.set_threshold(50_000, 20, 20)  # collections of garbage took a fifth of the time

# Architecture -> the family of its tokenizer.
BACKBONES = {
    "bert": "wordpiece",
    "distilbert": "wordpiece",
    "roberta": "byte-level",
    "albert": "unigram",
    "modernbert": "byte-level",
    "electra": "wordpiece",
    "deberta": "unigram",
    "mpnet": "byte-level",
}


def some_pairs(others: Iterable[Any]) -> list[tuple[str, Any]]:
    """A third of all pairs of a backbone and one of `others`: enough where neither changes what is done with either."""
    return [(name, other) for i, name in enumerate(BACKBONES) for j, other in enumerate(others) if (i + j) % 3 == 0]


hypothesis.settings.register_profile(
    "toys", max_examples=25, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
hypothesis.settings.load_profile("toys")


FORKS = re.compile(r"tests\.forks|import forks|service\.process|service import process|quick_workers")


@cache
def _is_first(path: Path) -> bool:
    """Whether the tests of a file run first: the slow ones, and those that fork a process (`tests.forks`).

    Nothing waits for them at the end, and one worker runs them, which alone spends 15 seconds on such a process.
    """
    return "slow" in path.parts or bool(FORKS.search(path.read_text(encoding="utf-8")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of some files first."""
    items.sort(key=lambda item: not _is_first(item.path))


def pytest_collection_finish() -> None:
    """Keep what is imported out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


def _sentences(count: int) -> list[str]:
    rng = random.Random(0)
    subjects = [
        "The old fox",
        "A librarian",
        "Every compiler",
        "My neighbour",
        "The search engine",
        "An Owl in Ålesund",
    ]
    verbs = ["reads", "indexes", "rewrites", "forgets", "carefully measures", "jumped over"]
    objects = ["books", "sparse vectors", "the lazy dog", "twelve queries", "posting lists", "a naïve vocabulary"]
    tails = ["", "at night", "in the rain, twice", "because retrieval-augmented systems need it", "(see chapter 7)"]
    parts = (subjects, verbs, objects, tails)
    return [" ".join(rng.choice(part) for part in parts).strip() + rng.choice(".?!") for _ in range(count)]


@pytest.fixture(autouse=True, scope="session")
def _as_on_every_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Switch off what makes toys slow and what differs between machines.

    One thread, as for toy matrices more only cost. `dtype="auto"` means float32: numbers are compared here to more
    digits than bfloat16 has. The host's template of a model card is compiled once, not at every checkpoint. No file
    is forced to disk: the power stays on. No training collects garbage. The figure of a training is made and not
    rendered, which takes as long as a toy learns, and parts of other figures get no room (but with `drawn`). What is
    printed has the width of a terminal of 80 columns. The graphs of the built-in models compute each batch once,
    and equal modules are exported once. The answers of a system are timed for 20 queries, not 200.
    """
    import torch

    from tests.once import computed_once, written_once
    from vocable.encoding import graph_sessions
    from vocable.evaluation import cost
    from vocable.torch_models.graph_files import write_graph

    base = tmp_path_factory.getbasetemp()
    graphs = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "graphs"
    graphs.mkdir(exist_ok=True)

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("vocable.torch_models.cpu.native_bfloat16", lambda device: False)
        patched.setenv("COLUMNS", "80")
        patched.setattr(jinja2, "Template", lru_cache(jinja2.Template))
        patched.setattr(os, "fsync", lambda file: None)
        patched.setattr("accelerate.utils.memory.gc", SimpleNamespace(collect=lambda: 0))
        patched.setattr("vocable.tuning.tune.release_memory", lambda *, collect=False: None)
        patched.setattr("vocable.training.log.save_figure", lambda figure, path: Path(path).touch())
        patched.setattr(figures, "LAYOUT", None)
        timed_rows = cost.timed_rows
        patched.setattr(cost, "timed_rows", lambda count, answers=20: timed_rows(count, min(answers, 20)))
        patched.setattr(graph_sessions, "_onnx", computed_once(graph_sessions._onnx))
        for exporter in ("export", "export_dense", "export_cross"):
            patched.setattr(f"vocable.torch_models.{exporter}.write_graph", written_once(write_graph, graphs))
        yield


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn as they are for users."""
    monkeypatch.setattr("vocable.training.log.save_figure", figures.save_figure)
    monkeypatch.setattr(figures, "LAYOUT", "constrained")


@pytest.fixture
def quiet_libraries() -> Iterator[None]:
    """These libraries were imported before the command line could silence them; for other tests they speak again."""
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    yield
    transformers_logging.set_verbosity(level)
    if bars:
        transformers_logging.enable_progress_bar()


def copy_store(source: Path, target: Path) -> Path:
    """Copy the folder of an index."""
    return Path(shutil.copytree(source, target))


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of `vocable.core.processes` are forks of a process that has imported the libraries."""
    from tests import forks

    monkeypatch.setattr("vocable.core.processes.get_context", lambda method: forks.context())


@pytest.fixture(scope="session")
def toy_texts() -> list[str]:
    """300 short English sentences, cased, with punctuation and a few accents; many of them repeat."""
    return _sentences(300)


@pytest.fixture(scope="session")
def tokenizers(toy_texts: list[str]) -> dict[str, PreTrainedTokenizerFast]:
    """One tokenizer of each family: "wordpiece" (uncased), "byte-level" (cased), "unigram" (cased)."""
    from studies.toy_models import FAMILIES, make_tokenizer

    return {family: make_tokenizer(family, toy_texts) for family in FAMILIES}


@pytest.fixture
def tokenizer(tokenizers: dict[str, PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    """The tokenizer of word pieces."""
    return tokenizers["wordpiece"]


@pytest.fixture(scope="session")
def backbones(
    tmp_path_factory: pytest.TempPathFactory, tokenizers: dict[str, PreTrainedTokenizerFast], toy_texts: list[str]
) -> dict[str, Path]:
    """Architecture -> folder of a plain masked-language-model checkpoint, random but for a calibrated output bias."""
    from studies.toy_models import make_backbone

    folders = {name: tmp_path_factory.mktemp(name) for name in BACKBONES}
    for name, family in BACKBONES.items():
        make_backbone(name, tokenizers[family], toy_texts[:32], folders[name])
    return folders


@pytest.fixture(scope="session")
def model(backbones: dict[str, Path]) -> str:
    """The folder of the BERT backbone."""
    return str(backbones["bert"])


@pytest.fixture(scope="session")
def graph(backbones: dict[str, Path], toy_texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the BERT backbone as a graph."""
    pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")
    from vocable.encoding.load import load
    from vocable.torch_models.export import export_model

    folder = tmp_path_factory.mktemp("graph") / "model"
    export_model(load(backbones["bert"], device="cpu"), folder, texts=toy_texts[:8])
    return folder


@pytest.fixture(params=BACKBONES)
def backbone(request: pytest.FixtureRequest, backbones: dict[str, Path]) -> Path:
    """The folder of each architecture's checkpoint in turn."""
    return backbones[request.param]


@pytest.fixture(scope="session")
def documents(toy_texts: list[str]) -> list[Document]:
    """40 toy texts with a title and two further fields."""
    from vocable.data import Document

    texts, languages = sorted(set(toy_texts))[:40], ["de", "en", "fr"]
    return [Document(f"d{i}", text, f"chapter {i}", {"lang": languages[i % 3], "n": i}) for i, text in enumerate(texts)]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, documents: list[Document]) -> Path:
    """The `documents` as a file."""
    return write_corpus(documents, tmp_path_factory.mktemp("corpus") / "corpus.jsonl")


@pytest.fixture(scope="session")
def dense(backbones: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a dense model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    folder = tmp_path_factory.mktemp("dense")
    modules = [Transformer(str(backbones["bert"])), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def m3(tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a toy BGE-M3, which gives sparse and dense vectors (d = 32) in one pass."""
    from tests.toys import make_m3

    return str(make_m3(tokenizers["byte-level"], tmp_path_factory.mktemp("m3") / "model"))


@pytest.fixture(scope="session")
def cross(tokenizers: dict[str, PreTrainedTokenizerFast], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a random cross encoder."""
    from studies.toy_models import make_cross_encoder

    return str(make_cross_encoder(tokenizers["wordpiece"], tmp_path_factory.mktemp("cross")))


@pytest.fixture
def toy_model(backbones: dict[str, Path]) -> SparseEncoder:
    """A small fused SparseEncoder (BERT, max pooling) on the processor, the test's own."""
    from sentence_transformers import SparseEncoder

    from vocable.torch_models.fuse import fuse

    return fuse(SparseEncoder(str(backbones["bert"]), device="cpu")).eval()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; a test is skipped where either is missing."""
    reason = "the pages are tested with playwright, which is not here"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        names = ("chromium", "chromium-browser", "google-chrome")
        found = next(filter(None, map(shutil.which, names)), str(own) if own.exists() else None)
        if found is None:
            pytest.skip("there is no browser: install chromium, or run `playwright install chromium`")
        sync_api.expect.set_options(timeout=20_000)
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()
