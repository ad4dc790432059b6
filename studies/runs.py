"""Runs of a study: adapt a model, train it and measure it. Each result is kept as soon as it is complete.

Below the output folder:

    models/NAME      the trained models
    adapted/NAME     models before calibration and training, which several runs may share
    prepared/...     examples whose negatives runs sample, read once for all runs
    checkpoints/NAME the last checkpoint of a pre-training that a longer pre-training continues
    measured/NAME    measurements by dataset, and the reports
    vectors/NAME     vectors and indexes of a collection, removed when it has been measured
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from studies.dense import kind_of
from studies.kept import Kept, Origin, measuring_code, read_kept, write_kept
from studies.measurements import LEXICAL, Column, Function, Values
from studies.prepared import PREPARED, with_prepared_examples
from studies.vectors import Encoders, Place
from vocable.adapt.stages import STAGES
from vocable.core.fingerprint import INPUTS_KEY, changed, fingerprint, fingerprints
from vocable.core.storage import SETTINGS, finish, finished, read_record, replacing_folder, resumable
from vocable.encoding.hub import first_line, trusting
from vocable.encoding.load import load
from vocable.errors import VocableError
from vocable.options import DType
from vocable.torch_models.inference_free import make_inference_free
from vocable.torch_models.sparse_encoder import save_model
from vocable.training import distributed
from vocable.training.callbacks import last_checkpoint
from vocable.training.log import LOG
from vocable.training.pretraining.pretrain import KEPT_LOG
from vocable.training.recipe import Recipe
from vocable.training.stages import PRETRAIN, carry_out_stages
from vocable.training.train import train

logger = logging.getLogger("vocable.studies")

# Keys of a recipe: those of the adapted model, and all that it depends on.
ADAPTING = ("head", *takewhile(lambda name: name != "calibrate", (one.name for one in STAGES)))
BEFORE_TRAINING = (
    "model",
    "pooling",
    "special_terms",
    "seed",
    "data_folder",
    *ADAPTING,
)  # the activation is that of the training
NEEDS = ("recipe", "adapted", "model")  # in the order in which they are made

# What changes a finished model before it is measured: queries that are looked up with weights of 1, or special tokens
# that stay terms.
Change = Literal["look up queries", "keep special terms"]


class Request(NamedTuple):
    """A measurement on a dataset, with its options as JSON."""

    measure: Function
    needs: str
    on: str | None
    options: str

    @classmethod
    def of(cls, column: Column, dataset: str | None) -> Request:
        """Return the measurement of a column on a dataset."""
        return cls(column.measure, column.needs, dataset, json.dumps(column.options, sort_keys=True))

    @property
    def key(self) -> str:
        """The key of its values in the file of measurements."""
        options = self.options if self.options != "{}" else ""
        return " ".join(filter(None, [self.measure.__name__, self.on, options]))


class RunError(VocableError):
    """A library failed in a run, as without memory; the message has its error."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Raise `RunError` for library errors that end a run, but say nothing about the next run."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # PyTorch's error of memory is a RuntimeError
        raise RunError(f"{type(error).__name__}: {first_line(error)}") from error


class Run:
    """A recipe to carry out, or a finished model to measure, below the folder `root`."""

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        recipe: Recipe | None = None,
        model: str | None = None,
        change: Change | None = None,
        dtype: DType = "float32",
    ) -> None:
        self.dtype = dtype  # in which texts are encoded to be measured
        self.name, self.root, self.recipe, self._model, self._change = name, root, recipe, model, change
        self.wanted: dict[Request, list[str]] = {}  # names of values
        self.needed = list[str]()  # `needs` of the recipe
        self.shares_with = name  # the run that makes the adapted model
        self.continues: Run | None = None  # a run whose pre-training is the beginning of this one's
        self.is_continued = False

    @property
    def model(self) -> str:
        """The trained or changed model: a folder, or the name of the model to measure as it is."""
        changed = self._model is None or self._change is not None
        return str(self.root / "models" / self.name) if changed else str(self._model)

    @property
    def start(self) -> str:
        """The name of the model that the recipe adapts, or that is measured."""
        return str(self._model) if self.recipe is None else self.recipe.model

    @property
    def adapted(self) -> str:
        """The model before calibration and training."""
        if self.recipe is None:
            return self.model
        changed = self.recipe.head == "new" or any(getattr(self.recipe, key) for key in ADAPTING[1:])
        return str(self.root / "adapted" / self.shares_with) if changed else self.recipe.model

    @property
    def steps(self) -> int:
        """The steps of the pre-training."""
        return 0 if self.recipe is None or self.recipe.pretrain is None else self.recipe.pretrain.steps

    @property
    def is_adapted(self) -> bool:
        """False if the model before calibration and training is pre-trained, and not made yet."""
        return self.recipe is None or self.recipe.pretrain is None or Path(self.adapted).exists()

    @property
    def needs(self) -> str:
        """The last part of the run that its measurements need."""
        return max((request.needs for request in self.wanted), key=NEEDS.index, default="recipe")

    def settings(self, keys: Sequence[str] | None = None, *, any_steps: bool = False) -> str:
        """Return a digest of the recipe, or of some of its keys; with `any_steps`, but its steps of pre-training."""
        if self.recipe is None:
            return " ".join(filter(None, [self._model, self._change]))
        values = self.recipe.model_dump(mode="json", exclude={"trust_remote_code"})
        if keys is not None:
            values = {key: values[key] for key in keys}
        if any_steps:
            values["pretrain"] = (values["pretrain"] or {}) | {"steps": None}
        return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()

    def reports(self, dataset: str) -> Path:
        """The folder of the reports on a dataset."""
        return self.root / "measured" / f"{self.name}-{dataset}"

    @property
    def kept(self) -> Path:
        """The file of its measurements."""
        return self.root / "measured" / f"{self.name}.json"

    def origin(self, places: Mapping[str, Place]) -> Origin:
        """Return what the values depend on: the content of the models, of the recipe's sources, and of the datasets."""
        recipe, models = self.recipe, {"model": self.start.removeprefix(kind_of(self.start))}
        if recipe is not None:
            models = {"model": self.model} | ({"adapted": self.adapted} if self.adapted != recipe.model else {})
        elif self.start in LEXICAL:
            models = {}
        scored = [json.loads(request.options).get("scored") for request in self.wanted]
        named = {request.on: None for request in self.wanted} | dict.fromkeys(scored)
        sources = {name: places[name].source for name in named if name in places}
        return Origin(
            self.settings(),
            self.dtype,
            measuring_code(),
            {} if recipe is None else fingerprints(recipe.inputs()),
            {name: content for name, place in models.items() if (content := fingerprint(place))},
            {name: fingerprint(source) or source for name, source in sources.items()},
        )

    def kept_values(self, places: Mapping[str, Place]) -> Kept | None:
        """Return what is kept, old or not; errors as in `measured`."""
        return read_kept(self.kept, self.origin(places))

    def measured(self, places: Mapping[str, Place]) -> dict[str, Values]:
        """Return the measured values by `Request.key`, without values that are older than what they depend on.

        Raises:
            RecipeError: the values belong to another recipe, or the recipe has read other data.
        """
        kept = self.kept_values(places)
        return {} if kept is None else kept.valid(self.origin(places))

    def _forget_stale(self, places: Mapping[str, Place]) -> None:
        """Remove values, reports and vectors that are older than what they depend on."""
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        now, kept = self.origin(places), self.kept_values(places)
        names = [request.on for request in self.wanted if request.on is not None]
        if kept is not None:
            reasons, stale = kept.origin.differences(now), kept.stale_datasets(now)
            if reasons or stale:
                changes = [*reasons, *(f"the dataset {name} has changed" for name in stale)]
                logger.warning("%s: %s: measured again", self.name, "; ".join(changes))
            names = [*names, *kept.origin.datasets] if reasons else stale
        if kept is None or names:
            for folder in [*map(self.reports, names), self.root / "vectors" / self.name]:
                shutil.rmtree(folder, ignore_errors=True)
        write_kept(self.kept, {} if kept is None else kept.valid(now), now, kept)

    def _left(self, values: Mapping[str, Values]) -> dict[Request, list[str]]:
        """Return the wanted names of values that are not measured yet."""
        return {one: names for one, names in self.wanted.items() if not set(names) <= values.get(one.key, {}).keys()}

    def carry_out(self, places: Mapping[str, Place]) -> None:
        """Adapt, train and measure whatever is not done yet.

        Raises:
            RunError: a library fails, as without memory; of several processes, in the measurement alone.
            VocableError: as in `vocable.train`.
        """
        with trusting(self.recipe is not None and self.recipe.trust_remote_code):
            for part in NEEDS:  # what needs no training is measured before it, which may fail
                left = self._left(distributed.by_first(partial(self.measured, places)))
                if any(request.needs == part for request in left):
                    with nullcontext() if distributed.count() > 1 else in_one_line():
                        self._make(part)
                    distributed.by_first(partial(self._measure, part, places))

    def _make(self, part: str) -> None:
        """Adapt and train the model as far as a part of the run needs it."""
        recipe = self.recipe
        if recipe is None:
            distributed.by_first(self._make_changed)
        if recipe is None or part == "recipe":
            return
        if self.adapted != recipe.model and (part == "adapted" or recipe.pretrain is not None):
            self._adapt(recipe)
        if part == "model":
            with distributed.first_alone():  # the others find what it has prepared
                prepared = with_prepared_examples(self._starting_recipe(recipe), self.root / PREPARED)
            train(prepared, self.model)

    def _make_changed(self) -> None:
        """Save the finished model with its change.

        Raises:
            ArgumentError: the folder has another model, or another change.
        """
        settings: dict[str, Any] = {"changes": self.settings(), INPUTS_KEY: fingerprints([self.start])}
        record = Path(self.model) / SETTINGS
        kept = read_record(record, dict[str, Any]) if record.exists() else {}
        if kept.get("changes") == settings["changes"] and changed(kept[INPUTS_KEY], settings[INPUTS_KEY]):
            shutil.rmtree(self.model)  # made of the model as it was
        if self._change is None or finished(self.model, settings):
            return
        if self._change == "look up queries":
            changed_model = make_inference_free(load(self.start), weights="ones")
        else:
            changed_model = load(self.start, special_terms=True)
        save_model(changed_model, self.model, settings)

    @property
    def checkpoints(self) -> Path:
        """The folder of the last checkpoint of the pre-training, for one that continues it."""
        return self.root / "checkpoints" / self.shares_with

    def _adapt(self, recipe: Recipe) -> None:
        """Make the model before calibration, with the log of its pre-training, which may continue another run's."""
        adapting = recipe.model_copy(update={"calibrate": None, "queries": None, "activation": None})
        inputs = fingerprints(adapting.inputs_of_stages())
        output, settings = Path(self.adapted), {"adapts": self.settings(BEFORE_TRAINING), INPUTS_KEY: inputs}
        if distributed.by_first(partial(finished, output, settings)):
            return
        earlier = self.continues
        if earlier is not None and earlier.recipe is not None:
            earlier._adapt(earlier.recipe)
        with ExitStack() as stack:
            with distributed.first_alone():
                work = stack.enter_context(resumable(output, settings))
                if distributed.is_first() and earlier is not None and not (work / PRETRAIN).exists():
                    with replacing_folder(work / PRETRAIN) as begun:
                        shutil.copytree(earlier.checkpoints, begun, dirs_exist_ok=True)
            adapted = Path(carry_out_stages(adapting, work))
            if distributed.is_first():
                if (log := work / PRETRAIN / LOG).exists():
                    shutil.copy(log, adapted / KEPT_LOG)
                if self.is_continued and not self.checkpoints.exists():  # an interrupted call may have kept it
                    self._keep_checkpoint(work)
                finish(work, output, adapted)
            distributed.wait()

    def _keep_checkpoint(self, work: Path) -> None:
        """Keep what a longer pre-training continues from: the windows, the log and the last checkpoint."""
        last = last_checkpoint(work / PRETRAIN)
        assert last is not None
        others = [one.name for one in (work / PRETRAIN).glob("checkpoint-*") if one.name != Path(last).name]
        with replacing_folder(self.checkpoints) as kept:
            shutil.copytree(work / PRETRAIN, kept, dirs_exist_ok=True, ignore=lambda *_: others)

    def _starting_recipe(self, recipe: Recipe) -> Recipe:
        """The recipe from the pre-trained model on; without pre-training, the stages are cheap to carry out again."""
        if recipe.pretrain is None:
            return recipe
        done = {key: Recipe.model_fields[key].default for key in ADAPTING}
        return recipe.model_copy(update={**done, "model": str(Path(self.adapted).resolve())})

    @in_one_line()
    def _measure(self, part: str, places: Mapping[str, Place]) -> None:
        """Measure one collection after the other. Values are kept at once, vectors until the collection is done."""
        self._forget_stale(places)
        kept, now = self.kept_values(places), self.origin(places)
        values = self.measured(places)
        by_corpus: dict[str | None, list[Request]] = defaultdict(list)
        left = self._left(values)
        for request in left:
            if NEEDS.index(request.needs) <= NEEDS.index(part):
                by_corpus[request.on and places[request.on].corpus].append(request)
        encoders = Encoders(self, places)
        for requests in by_corpus.values():
            for request in requests:
                on = None if request.on is None else encoders.open(request.on)
                measured = request.measure(self, on, left[request], **json.loads(request.options))
                values[request.key] = values.get(request.key, {}) | measured
                write_kept(self.kept, values, now, kept)
            encoders.close()
