"""Learned sparse retrieval: adapt, train, encode, search, measure, explain.

The verbs are imported when they are first used: `import vocable` itself takes no time.

It bounds how long OpenMP's threads spin while they wait (GOMP_SPINCOUNT, KMP_BLOCKTIME) and has PyTorch take large
pages (THP_MEM_ALLOC_ENABLE), unless the environment says something about that already.
"""

from __future__ import annotations

import ast
import gc
import os
import sys
from importlib import import_module
from inspect import Signature, getsource, signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # each public name, once: type checkers read these lines, and so does this module
    from vocable.adapt.alignment import align as align
    from vocable.adapt.calibrate import calibrate as calibrate
    from vocable.adapt.expand_vocabulary import expand_vocabulary as expand_vocabulary
    from vocable.adapt.inspect import inspect as inspect
    from vocable.adapt.rescale import rescale as rescale
    from vocable.adapt.train_vocabulary import train_tokenizer as train_tokenizer
    from vocable.adapt.train_vocabulary import train_vocabulary as train_vocabulary
    from vocable.adapt.transfer import transfer as transfer
    from vocable.analysis.logits import analyze_logits as analyze_logits
    from vocable.analysis.stored_vectors import analyze_postings as analyze_postings
    from vocable.analysis.stored_vectors import analyze_weights as analyze_weights
    from vocable.cli.demo import demo as demo
    from vocable.data import read_corpus as read_corpus
    from vocable.data import read_examples as read_examples
    from vocable.data import read_judgments as read_judgments
    from vocable.data import read_queries as read_queries
    from vocable.data import read_texts as read_texts
    from vocable.encoder.encode import encode as encode
    from vocable.encoder.export import export_model as export_model
    from vocable.encoder.fuse import fuse as fuse
    from vocable.encoder.fuse import unfuse as unfuse
    from vocable.encoder.inference_free import make_inference_free as make_inference_free
    from vocable.encoder.load import load as load
    from vocable.encoder.provenance import new_tokens as new_tokens
    from vocable.encoder.terms import terms as terms
    from vocable.evaluation.evaluate import evaluate as evaluate
    from vocable.evaluation.select import select as select
    from vocable.evaluation.significance import compare as compare
    from vocable.evaluation.testsets import make_testset as make_testset
    from vocable.pruning import prune as prune
    from vocable.retrieval.answers import search as search
    from vocable.retrieval.bm25 import BM25Index as BM25Index
    from vocable.retrieval.check import check_engine as check_engine
    from vocable.retrieval.exact_index import ExactIndex as ExactIndex
    from vocable.retrieval.explain import explain as explain
    from vocable.retrieval.export import export as export
    from vocable.retrieval.fusion import reciprocal_rank as reciprocal_rank
    from vocable.retrieval.fusion import weighted as weighted
    from vocable.retrieval.verbs import add as add
    from vocable.retrieval.verbs import delete as delete
    from vocable.retrieval.verbs import index as index
    from vocable.retrieval.verbs import open_index as open_index
    from vocable.service.server import serve as serve
    from vocable.training.mine import mine as mine
    from vocable.training.mine import teacher_scores as teacher_scores
    from vocable.training.pretraining.pretrain import pretrain as pretrain
    from vocable.training.recipe import read_recipe as read_recipe
    from vocable.training.recipe_files import recipes as recipes
    from vocable.training.stages import provenance as provenance
    from vocable.training.train import train as train
    from vocable.wackiness.ablate import ablate as ablate
    from vocable.wackiness.study import measure_wackiness as measure_wackiness

# A thread that spins takes its core from the one that it waits for as soon as something else runs on the machine, too.
# Two threads on two cores encode, in texts a second with the machine to themselves and beside a busy neighbour:
#
#     spins           quiet   beside
#     unbounded          91     4-14
#     10,000             88       39
#     1,000              76       56
#     never (passive)    72       61
#
# libgomp counts spins, LLVM's and Intel's libomp milliseconds. Each reads its environment once, when it is loaded:
# where torch has been imported before this, nothing can be done any more.
_WAITING = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}

if "OMP_WAIT_POLICY" not in os.environ:  # which is about both libraries, the others about one each
    for _name, _value in _WAITING.items():
        os.environ.setdefault(_name, _value)

# PyTorch asks for large pages where a tensor is large: gradients of an embedding, zeroed at every step, took 15 %
# of a training step, most of it to get pages. Linux only; read once, as the above.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"

# Where each public name is defined: "vocable.encoder.load:load".
HOMES = {
    alias.name: f"{node.module}:{alias.name}"
    for node in ast.walk(ast.parse(getsource(sys.modules[__name__])))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vocable.")
    for alias in node.names
}

__all__ = [*HOMES]


def imported(home: str) -> Any:
    """What "module:name" says, imported now.

    Garbage is not looked for meanwhile: there is hardly any in new modules, and looking takes a fifth of the time.
    """
    module, _, name = home.partition(":")
    collects = gc.isenabled()
    gc.disable()
    try:
        return getattr(import_module(module), name)
    finally:
        if collects:
            gc.enable()


class _VerbModule(ModuleType):
    """A module whose name is that of a verb, too: `vocable.retrieval.protocols` is a module, `vocable.search(...)` a call."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return imported(HOMES[self.__name__.rpartition(".")[2]])(*arguments, **named)

    @property
    def __signature__(self) -> Signature:
        return signature(imported(HOMES[self.__name__.rpartition(".")[2]]))


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Called for each submodule that is imported."""
        if name in HOMES and isinstance(value, ModuleType):
            value.__class__ = _VerbModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'vocable' has no attribute {name!r}")
    return globals().setdefault(name, imported(HOMES[name]))


def __dir__() -> list[str]:
    return sorted(globals() | HOMES)
