"""Learned sparse retrieval: adapt, train, encode, search, measure, explain.

Public names are imported when they are first used: `import vocable` is quick and changes nothing in the process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vocable.adapt.alignment import align as align
    from vocable.adapt.calibrate import calibrate as calibrate
    from vocable.adapt.expand_vocabulary import expand_vocabulary as expand_vocabulary
    from vocable.adapt.inspect import inspect as inspect
    from vocable.adapt.merge import merge as merge
    from vocable.adapt.rescale import rescale as rescale
    from vocable.adapt.train_vocabulary import train_tokenizer as train_tokenizer
    from vocable.adapt.train_vocabulary import train_vocabulary as train_vocabulary
    from vocable.adapt.transfer import transfer as transfer
    from vocable.analysis.logits import analyze_logits as analyze_logits
    from vocable.analysis.stored_vectors import analyze_postings as analyze_postings
    from vocable.analysis.stored_vectors import analyze_weights as analyze_weights
    from vocable.cli.demo import demo as demo
    from vocable.collection.answers import search as search
    from vocable.collection.collection import open_index as open_index
    from vocable.collection.generations import alias as alias
    from vocable.collection.generations import drop as drop
    from vocable.collection.index import index as index
    from vocable.collection.standing import explain as explain
    from vocable.collection.verbs import add as add
    from vocable.collection.verbs import check as check
    from vocable.collection.verbs import delete as delete
    from vocable.core.threads import tune_threads as tune_threads
    from vocable.data import read_corpus as read_corpus
    from vocable.data import read_examples as read_examples
    from vocable.data import read_judgments as read_judgments
    from vocable.data import read_queries as read_queries
    from vocable.data import read_texts as read_texts
    from vocable.encoding.encode import encode as encode
    from vocable.encoding.load import load as load
    from vocable.encoding.pruning import prune as prune
    from vocable.encoding.terms import terms as terms
    from vocable.evaluation.bakeoff import bakeoff as bakeoff
    from vocable.evaluation.evaluate import evaluate as evaluate
    from vocable.evaluation.select import select as select
    from vocable.evaluation.significance import compare as compare
    from vocable.evaluation.testsets import make_testset as make_testset
    from vocable.indexes.bm25 import BM25Index as BM25Index
    from vocable.indexes.exact_index import ExactIndex as ExactIndex
    from vocable.indexes.export import export as export
    from vocable.indexes.fusion import reciprocal_rank as reciprocal_rank
    from vocable.indexes.fusion import weighted as weighted
    from vocable.publishing.publication import publish as publish
    from vocable.service.server import serve as serve
    from vocable.torch_models.convert import convert as convert
    from vocable.torch_models.export import export_model as export_model
    from vocable.torch_models.fuse import fuse as fuse
    from vocable.torch_models.fuse import unfuse as unfuse
    from vocable.torch_models.inference_free import make_inference_free as make_inference_free
    from vocable.torch_models.provenance import new_tokens as new_tokens
    from vocable.training.mine import mine as mine
    from vocable.training.mine import teacher_scores as teacher_scores
    from vocable.training.pretraining.pretrain import pretrain as pretrain
    from vocable.training.recipe_files import read_recipe as read_recipe
    from vocable.training.recipe_files import recipes as recipes
    from vocable.training.stages import provenance as provenance
    from vocable.training.train import train as train
    from vocable.tuning.tune import tune as tune
    from vocable.wackiness.ablate import ablate as ablate
    from vocable.wackiness.study import measure_wackiness as measure_wackiness

__version__ = "0.1.0"

# The public names by module. The imports above say the same to type checkers; a test compares the two.
_NAMES = {
    "adapt.alignment": "align",
    "adapt.calibrate": "calibrate",
    "adapt.expand_vocabulary": "expand_vocabulary",
    "adapt.inspect": "inspect",
    "adapt.merge": "merge",
    "adapt.rescale": "rescale",
    "adapt.train_vocabulary": "train_tokenizer train_vocabulary",
    "adapt.transfer": "transfer",
    "analysis.logits": "analyze_logits",
    "analysis.stored_vectors": "analyze_postings analyze_weights",
    "cli.demo": "demo",
    "collection.answers": "search",
    "collection.standing": "explain",
    "collection.generations": "alias drop",
    "collection.index": "index",
    "collection.collection": "open_index",
    "collection.verbs": "add check delete",
    "core.threads": "tune_threads",
    "data": "read_corpus read_examples read_judgments read_queries read_texts",
    "encoding.encode": "encode",
    "encoding.load": "load",
    "encoding.pruning": "prune",
    "encoding.terms": "terms",
    "evaluation.bakeoff": "bakeoff",
    "evaluation.evaluate": "evaluate",
    "evaluation.select": "select",
    "evaluation.significance": "compare",
    "evaluation.testsets": "make_testset",
    "indexes.bm25": "BM25Index",
    "indexes.exact_index": "ExactIndex",
    "indexes.export": "export",
    "indexes.fusion": "reciprocal_rank weighted",
    "publishing.publication": "publish",
    "service.server": "serve",
    "torch_models.convert": "convert",
    "torch_models.export": "export_model",
    "torch_models.fuse": "fuse unfuse",
    "torch_models.inference_free": "make_inference_free",
    "torch_models.provenance": "new_tokens",
    "training.mine": "mine teacher_scores",
    "training.pretraining.pretrain": "pretrain",
    "training.recipe_files": "read_recipe recipes",
    "training.stages": "provenance",
    "training.train": "train",
    "tuning.tune": "tune",
    "wackiness.ablate": "ablate",
    "wackiness.study": "measure_wackiness",
}
_MODULES = {name: f"vocable.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vocable' has no attribute {name!r}")
    from vocable.errors import naming_extra

    with naming_extra():
        value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # also where a module of the package bears the name
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
