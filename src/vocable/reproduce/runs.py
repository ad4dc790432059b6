"""A run of a study: the model that is adapted, trained and measured, each part once, and kept as soon as it is whole.

Below the output folder:

    models/NAME      the trained models
    adapted/NAME     where there is pre-training: what it makes, which several runs may share
    measured/NAME    what was measured, by dataset and measurement; and the reports
    vectors/NAME     while a run is measured: vectors by collection, removed when all of it is measured
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder

from vocable.adapt.stages import stage, stages
from vocable.data import Document
from vocable.encoder.asymmetric import Role
from vocable.encoder.hub import trusting
from vocable.encoder.load import load
from vocable.encoder.stream import encode_stream
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import RecipeError
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.retrieval import Encoded
from vocable.reproduce.measurements import MEASUREMENTS, Values
from vocable.reproduce.study import Column
from vocable.storage import finish, finished, read_record, resumable, write_record
from vocable.training import distributed
from vocable.training.pretraining.pretrain import KEPT_LOG
from vocable.training.pretraining.pretrain import LOG as PRETRAIN_LOG
from vocable.training.recipe import Recipe
from vocable.training.stages import PRETRAIN, carry_out_stages
from vocable.training.train import train
from vocable.vectors import read_vectors

CALIBRATE = stage("calibrate").order
BEFORE_TRAINING = ("head", *(one.name for one in stages() if one.order < CALIBRATE))  # keys of the adapted model
NEEDS = ("recipe", "adapted", "model")  # each has what is before it


class Request(NamedTuple):
    """A measurement on a dataset, with options as JSON."""

    of: str
    on: str | None
    options: str

    @classmethod
    def by(cls, column: Column, dataset: str | None) -> Request:
        """What gives a column its value on a dataset."""
        return cls(column.of, dataset, json.dumps(column.options, sort_keys=True))

    @property
    def key(self) -> str:
        """What it is called where its values are kept."""
        return " ".join(filter(None, [self.of, self.on, self.options if self.options != "{}" else ""]))


Wanted = dict[Request, list[str]]  # and its values


class Place(NamedTuple):
    """Where a dataset is, and the name of the one whose vectors of documents it shares."""

    source: str
    corpus: str


class Run:
    """A recipe to carry out, or a model to measure as it is, below the folder `root`."""

    def __init__(self, name: str, root: Path, *, recipe: Recipe | None = None, model: str | None = None) -> None:
        self.name, self.root, self.recipe, self._model = name, root, recipe, model
        self.wanted: Wanted = {}
        self.needed = list[str]()  # what the recipe says that it needs, in words
        self.shares_with = name  # the run that makes the adapted model

    @property
    def model(self) -> str:
        """The trained model: a folder, or the name of what is measured as it is."""
        return self._model or str(self.root / "models" / self.name)

    @property
    def adapted(self) -> str:
        """The model before calibration and training."""
        if self.recipe is None:
            return self.model
        changed = self.recipe.head == "new" or any(getattr(self.recipe, key) for key in BEFORE_TRAINING[1:])
        return str(self.root / "adapted" / self.shares_with) if changed else self.recipe.model

    @property
    def needs(self) -> str:
        """How far the run is to be carried out for all that is wanted of it."""
        return max((MEASUREMENTS[request.of].needs for request in self.wanted), key=NEEDS.index, default="recipe")

    def settings(self, keys: Sequence[str] | None = None) -> str:
        """A digest of the recipe, or of some of its keys and what they depend on."""
        if self.recipe is None:
            return self.model
        values = self.recipe.model_dump(mode="json", exclude={"trust_remote_code"})
        if keys is not None:
            values = {key: values[key] for key in ("model", "pooling", "activation", "seed", "data_folder", *keys)}
        return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()

    def carry_out(self, places: Mapping[str, Place]) -> dict[str, Values]:
        """Adapt and train what is not there yet, measure what has not been measured; the values by `Request.key`."""
        kept = self.root / "measured" / f"{self.name}.json"
        values: dict[str, Values] = distributed.by_first(lambda: self._read(kept))
        left = {
            request: names
            for request, names in self.wanted.items()
            if not set(names) <= values.get(request.key, {}).keys()
        }
        if not left:
            return values
        needs = {MEASUREMENTS[request.of].needs for request in left}
        with trusting(self.recipe is not None and self.recipe.trust_remote_code):
            if self.recipe is not None:
                pretrains = self.recipe.pretrain is not None
                if self.adapted != self.recipe.model and ("adapted" in needs or (pretrains and "model" in needs)):
                    self._adapt()
                if "model" in needs:
                    train(self._starting_recipe(), self.model)
            return distributed.by_first(lambda: self._measure(left, values, kept, places))

    def _read(self, kept: Path) -> dict[str, Values]:
        if not kept.exists():
            return {}
        record = read_record(kept, dict[str, Any], error=RecipeError)
        if record.get("settings") != self.settings():
            raise RecipeError(f"{kept}: measured with another recipe: name another output, or remove it")
        found: dict[str, Values] = record["values"]
        return found

    def _adapt(self) -> None:
        """Make the model before calibration, with the log of its pre-training."""
        assert self.recipe is not None
        part = self.recipe.model_copy(update={"calibrate": None, "queries": None})
        output, settings = Path(self.adapted), {"adapts": self.settings(BEFORE_TRAINING)}
        if distributed.by_first(partial(finished, output, settings)):
            return
        with ExitStack() as stack:
            with distributed.first_alone():
                work = stack.enter_context(resumable(output, settings))
            made = Path(carry_out_stages(part, work))
            if distributed.is_first():
                if (log := work / PRETRAIN / PRETRAIN_LOG).exists():
                    shutil.copy(log, made / KEPT_LOG)
                finish(work, output, made)
            distributed.wait()

    def _starting_recipe(self) -> Recipe:
        """The recipe, from the adapted model on where that was pre-trained: other stages are made again in no time."""
        assert self.recipe is not None
        if self.recipe.pretrain is None:
            return self.recipe
        done = {key: "own" if key == "head" else False if key == "lowercase" else None for key in BEFORE_TRAINING}
        return self.recipe.model_copy(update={**done, "model": str(Path(self.adapted).resolve())})

    def _measure(
        self, left: Wanted, values: dict[str, Values], kept: Path, places: Mapping[str, Place]
    ) -> dict[str, Values]:
        """Measure collection after collection; what is measured is kept at once, what is encoded until the last."""
        kept.parent.mkdir(parents=True, exist_ok=True)
        by_corpus: dict[str | None, Wanted] = defaultdict(dict)
        for request, names in left.items():
            by_corpus[request.on and places[request.on].corpus][request] = names
        opened = _Opened(self, places)
        for requests in by_corpus.values():
            for request, names in requests.items():
                on, options = opened.dataset(request.on), json.loads(request.options)
                measured = MEASUREMENTS[request.of].function(self, on, names, **options)
                values[request.key] = values.get(request.key, {}) | measured
                write_record(kept, {"settings": self.settings(), "values": values})
            opened.remove()
        return values


class _Opened:
    """The model of a run while it is measured, and the datasets of one collection."""

    def __init__(self, run: Run, places: Mapping[str, Place]) -> None:
        self.run, self._places = run, places
        self.vectors = run.root / "vectors" / run.name
        self._datasets: dict[str, _OnDataset] = {}

    @cached_property
    def model(self) -> SparseEncoder:
        """The trained model."""
        return load(self.run.model)

    def dataset(self, name: str | None) -> _OnDataset | None:
        """The dataset of this name, with the one whose documents it shares."""
        if name is None:
            return None
        if name not in self._datasets:
            source, corpus = self._places[name]
            self._datasets[name] = _OnDataset(self, name, source, None if corpus == name else self.dataset(corpus))
        return self._datasets[name]

    def remove(self) -> None:
        """Forget the collection, and remove its vectors."""
        self._datasets.clear()
        shutil.rmtree(self.vectors, ignore_errors=True)


class _OnDataset:
    """A dataset and its vectors; documents that `first`, of the same collection, has are not encoded again."""

    def __init__(self, opened: _Opened, name: str, source: str, first: _OnDataset | None) -> None:
        self.name, self.source, self._opened, self._first = name, source, opened, first

    @cached_property
    def folder(self) -> Path:
        """Where reports are kept."""
        folder = self._opened.run.root / "measured" / f"{self._opened.run.name}-{self.name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def dataset(self) -> Dataset:
        """Documents, judged queries and judgments."""
        return load_dataset(self.source)

    @cached_property
    def vectors(self) -> tuple[list[str], list[str]]:
        """The folders of the queries' vectors and of the documents'."""
        queries = [Document(query.id, query.text) for query in self.dataset.queries]
        own, shared = list(self.dataset.documents), list[str]()
        if self._first is not None:
            there = {document.id: document.full for document in self._first.dataset.documents}
            own = [document for document in own if there.get(document.id) != document.full]
            shared = self._first.vectors[1]
        here = [self._encode("document", own)] if own or not shared else []
        return [self._encode("query", queries)], [*here, *shared]

    def _encode(self, role: Role, texts: Sequence[Document]) -> str:
        folder = self._opened.vectors / f"{self.name}-{role}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        name, recipe = self._opened.run.model, self._opened.run.recipe
        encoder = TextEncoder(self._opened.model, role, dtype="auto" if recipe is None else recipe.training.dtype)
        encode_stream(encoder, texts, folder, model=name, source=f"{self.name} {role}", total=len(texts))
        return str(folder)

    @cached_property
    def encoded(self) -> Encoded:
        """The same as vectors of the trained model, in the order of the dataset."""
        queries, documents = self.vectors
        ids = [document.id for document in self.dataset.documents]
        return Encoded(self.dataset, read_vectors(queries).matrix, _rows(documents, ids), None)


def _rows(folders: Sequence[str], ids: Sequence[str]) -> csr_array:
    """Return the vectors of these ids, each from the first folder that has it."""
    stored = [read_vectors(folder) for folder in folders]
    rows = dict[str, int]()
    for row, identifier in enumerate(chain.from_iterable(one.ids for one in stored)):
        rows.setdefault(identifier, row)
    order = np.array([rows[identifier] for identifier in ids])
    matrix = stored[0].matrix if len(stored) == 1 else vstack([one.matrix for one in stored], format="csr")
    in_place = len(order) == matrix.shape[0] and bool((order == np.arange(len(order))).all())
    return csr_array(matrix) if in_place else csr_array(matrix[order])
