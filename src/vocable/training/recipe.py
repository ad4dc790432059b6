"""Schema of a recipe: keys, defaults, descriptions (docs/recipe-keys.md), and the combinations that are refused.

`vocable.objectives` has the settings of losses and regularizers, and `vocable.adapt` the settings of most stages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    PositiveInt,
    StringConstraints,
    Tag,
    create_model,
    field_validator,
    model_validator,
)

from vocable.adapt.stages import STAGES, OptimizerSettings, Stage
from vocable.core.fingerprint import DERIVED, INPUTS_KEY, fingerprints
from vocable.encoding.pooling import PoolingName
from vocable.errors import ArgumentError, RecipeError
from vocable.objectives import Settings
from vocable.objectives.settings import AnyLoss, InfoNCE, OneSide, QueueSettings, Regularizers


class HardNegatives(Settings):
    """Examples as ids, in the layout of the msmarco-hard-negatives data set, and the sources of their texts."""

    file: str = Field(description="place of the ids: positives and, by system, negatives of each query")
    corpus: str = Field(description="place of the documents")
    queries: str = Field(description="place of the queries")
    scores: str | None = Field(default=None, description="place of a teacher's scores; unscored: never a negative")
    systems: list[str] | None = Field(default=None, min_length=1, description="systems of the negatives; null: all")

    def places(self) -> list[str]:
        """Return the places of all its files."""
        return [place for place in (self.file, self.corpus, self.queries, self.scores) if place is not None]


Source = Annotated[
    Annotated[str, Tag("place")] | Annotated[HardNegatives, Tag("hard_negatives")],
    Discriminator(lambda given: "place" if isinstance(given, str) else "hard_negatives"),
]


class DataSettings(Settings):
    """Data of the retrieval training."""

    examples: list[Source] = Field(min_length=1, description="sources of query, positive and negatives, or of ids")
    negatives: int = Field(default=0, ge=0, description="hard negatives taken from each example")
    sampling: Literal["first", "random"] = Field(default="first", description="random: new negatives in each pass")
    false_negative_margin: float | None = Field(
        default=None, description="leave out negatives that score above the positive's score minus this"
    )
    size_exponent: float = Field(default=1.0, ge=0, le=1, description="share of n examples: proportional to n^this")
    held_out: int = Field(default=64, ge=0, description="examples held out for the report, at most a tenth")
    topical: bool = Field(default=False, description="batches of examples that are similar by the dense teacher")
    skip_bad: int = Field(default=0, ge=0, description="bad lines to skip in all sources; another one is an error")

    @model_validator(mode="after")
    def _check(self) -> DataSettings:
        if not self.negatives and (self.sampling == "random" or self.false_negative_margin is not None):
            raise ValueError("sampling and false_negative_margin need negatives")
        if self.false_negative_margin is not None and any(
            isinstance(source, HardNegatives) and source.scores is None for source in self.examples
        ):
            raise ValueError("false_negative_margin needs the scores of every source")
        return self


class TeacherSettings(Settings):
    """Teachers that score every query of a batch with every document; several are standardized and averaged."""

    models: list[str] = Field(default=[], description="dense or sparse encoders: folder, Hub id or package:NAME/FOLDER")
    lexical: bool = Field(default=False, description="add BM25 over the examples' documents as a teacher")
    weights: list[Annotated[float, Field(gt=0)]] | None = Field(
        default=None, description="weights of the mean: one per model, then the weight of BM25; equal by default"
    )
    max_length: PositiveInt = Field(default=128, description="tokens of a text that the models read")

    @model_validator(mode="after")
    def _check(self) -> TeacherSettings:
        if not self.models and not self.lexical:
            raise ValueError("teacher needs models or lexical")
        teachers = len(self.models) + self.lexical
        if self.weights is not None and len(self.weights) != teachers:
            raise ValueError(f"weights needs one value for each of {teachers} teachers, not {len(self.weights)}")
        return self


class MaxTermsSettings(Settings):
    """Losses on only the heaviest terms."""

    query: PositiveInt | None = Field(default=None, description="q_K, terms of a query; null for all")
    document: PositiveInt | None = Field(default=None, description="d_K, terms of a document; null for all")
    full: bool = Field(default=True, description="add the losses of the full vectors")

    @model_validator(mode="after")
    def _check(self) -> MaxTermsSettings:
        if self.query is None and self.document is None:
            raise ValueError("max_terms needs query, document, or both")
        return self


class MiningSettings(Settings):
    """Negatives that the model itself mines, again and again (ANCE), instead of the examples' own negatives."""

    every: PositiveInt = Field(description="steps between two indexes; the first index is the initial model's")
    depth: PositiveInt = Field(default=200, description="best documents of a query that negatives are drawn from")
    corpus: str | None = Field(
        default=None, description="source of the documents; null: the positives that the run sees"
    )


class TrainingSettings(OptimizerSettings):
    """Retrieval training, by default InfoNCE over in-batch and hard negatives, with FLOPS."""

    batch_size: int = Field(default=32, ge=2, description="examples of a batch, on all devices together")
    learning_rate: float = Field(default=2e-5, gt=0, description="largest learning rate, after the warm-up")
    micro_batch: PositiveInt | None = Field(default=None, description="examples in memory at once; null for all")
    query_length: PositiveInt = 64
    document_length: PositiveInt = 128
    freeze_embeddings: bool = Field(default=False, description="do not train token embeddings or a tied decoder")
    losses: list[AnyLoss] = Field(default=[InfoNCE()], min_length=1)
    teacher: TeacherSettings | None = None
    sparse_teacher: str | None = Field(default=None, description="for the loss alignment: a model with the same terms")
    max_terms: MaxTermsSettings | None = None
    mine: MiningSettings | None = None
    regularizers: Regularizers = Regularizers()
    # YAML reads a bare `off` as false.
    guard: Annotated[
        Literal["stop", "warn", "off"],
        BeforeValidator(
            lambda given: "off" if given is False else given,
            json_schema_input_type=Literal["stop", "warn", "off", False],
        ),
    ] = "stop"

    @model_validator(mode="after")
    def _check(self) -> TrainingSettings:
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch_size {self.batch_size}")
        if len({loss.name for loss in self.losses}) < len(self.losses):
            raise ValueError("losses must have different names")
        of_vectors = [loss.name for loss in self.losses if loss.needs == "teacher_vectors"]
        if of_vectors and self.sparse_teacher is None:
            raise ValueError(f"the loss {of_vectors[0]} needs sparse_teacher")
        if self.sparse_teacher is not None and not of_vectors:
            raise ValueError("sparse_teacher needs the loss alignment")
        needs = {part.needs for part in self.regularizers.active.values() if isinstance(part, OneSide)}
        if self.mine is not None and (self.needs_scores or self.sparse_teacher or "idf" in needs):
            raise ValueError("mine excludes teachers, scores and idf_flops, which know the examples beforehand")
        return self

    @property
    def needs_scores(self) -> bool:
        """True if a loss needs the scores of `teacher` or of the examples."""
        return any(loss.needs == "teacher_scores" for loss in self.losses)

    @property
    def needs_rows(self) -> bool:
        """True if the objective needs to know which examples are in a batch."""
        return bool(self.needs_scores or self.sparse_teacher)

    @property
    def queue(self) -> QueueSettings | None:
        """The queue of the in-batch loss, if it has one."""
        return next((loss.queue for loss in self.losses if isinstance(loss, InfoNCE)), None)

    @property
    def monitored_loss(self) -> InfoNCE:
        """The InfoNCE that monitors the training, on the scores that the losses use."""
        losses = (loss.monitored_loss() for loss in self.losses)
        return next((loss for loss in losses if loss is not None), InfoNCE())


class EvaluationSettings(Settings):
    """Evaluation by exact search over whole datasets, during a training and of variants; `dataset: PLACE` for one."""

    datasets: Annotated[
        list[str],
        BeforeValidator(
            lambda given: [given] if isinstance(given, str) else given, json_schema_input_type=str | list[str]
        ),
    ] = Field(min_length=1, validation_alias=AliasChoices("datasets", "dataset"))
    measures: list[str] = Field(default=["nDCG@10"], min_length=1)
    wackiness: bool = Field(default=False, description="measure W-AUC, the wackiness of the queries' expansions, too")
    every: PositiveInt | None = Field(default=500, description="steps between evaluations; null: not in the training")
    best: bool = Field(default=False, description="save the weights with the best mean of the first measure")

    @model_validator(mode="after")
    def _check(self) -> EvaluationSettings:
        if self.best and self.every is None:
            raise ValueError("best needs every")
        return self

    @field_validator("measures")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        from vocable.evaluation.measures import parse_measures

        try:
            parse_measures(names)
        except ArgumentError as error:
            raise ValueError(str(error)) from error
        return names


def _limit(description: str) -> Any:
    return Field(default=None, description=f"{description}; null: as the initial model")


class SavedSettings(Settings):
    """Settings that are saved with the model."""

    query_length: PositiveInt | None = _limit("tokens of a query that the model reads")
    document_length: PositiveInt | None = _limit("tokens of a document that the model reads")
    query_terms: PositiveInt | None = _limit("heaviest terms of a query to keep")
    document_terms: PositiveInt | None = _limit("heaviest terms of a document to keep")
    query_idf: NonNegativeFloat | None = _limit("power of the collection's IDF in a search's query weights")
    start_share: float = Field(default=0.0, ge=0, lt=1, description="share of the initial weights in the saved weights")
    dtype: Literal["float32", "bfloat16"] = "float32"


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]  # also the name of a folder


class Variant(Settings):
    """Changed keys of a recipe, and the figures that a paper reports for it."""

    set: dict[str, object] = Field(default={}, description="dotted key: value; null removes a section")
    published: dict[str, float] = Field(default={}, description="measure or column: published figure")
    source: str = Field(default="", description="source of the figures")


class Backbone(Settings):
    """The first keys of a recipe. `about`, `needs` and `variants` describe it and are not saved with the model."""

    about: str = Field(default="", exclude=True)
    needs: list[str] = Field(default=[], exclude=True, description="what is not shipped, in words: data, devices, code")
    variants: dict[Name, Variant] = Field(default={}, exclude=True)
    model: str = Field(description="built-in name, folder, Hub id, or package:NAME/FOLDER")
    head: Literal["own", "new"] = Field(default="own", description="new: give an encoder without a head a new one")
    pooling: PoolingName = "max"
    activation: Literal["relu", "log1p_relu"] | None = Field(default=None, description="the model's own by default")
    special_terms: bool = Field(default=False, description="let special and unused tokens, such as [CLS], be terms")
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    trust_remote_code: bool = Field(default=False, description="run code that comes with the models")
    data_folder: str = Field(
        default="", description="relative places are looked up here; in a file, relative to the folder of the file"
    )


def _key(stage: Stage) -> Any:
    kind, default = (bool, False) if stage.settings is bool else (stage.settings | None, None)
    return kind, Field(default=default, description=stage.about or None)


# A key per stage, in the order that stages are carried out.
Adapted: Any = create_model("Adapted", __base__=Backbone, **{stage.name: _key(stage) for stage in STAGES})


class Recipe(Adapted, Backbone):
    """A training run: its backbone, the stages that adapt it, and its retrieval training."""

    data: DataSettings
    training: TrainingSettings
    evaluation: EvaluationSettings | None = None
    saved: SavedSettings = SavedSettings()

    @model_validator(mode="before")
    @classmethod
    def _without_fingerprints(cls, values: Any) -> Any:
        """Leave out the fingerprints that a saved recipe has (`made_from`)."""
        return (
            {key: value for key, value in values.items() if key != INPUTS_KEY} if isinstance(values, dict) else values
        )

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Recipe:
        if self.expand is not None and self.transfer is not None and self.transfer.head_only:
            raise ValueError("transfer.head_only and expand both replace the output terms: leave one of them out")
        teacher = self.training.teacher
        if self.data.topical and (teacher is None or not teacher.models):
            raise ValueError("data.topical needs a dense teacher: set training.teacher.models")
        if teacher is not None and not self.training.needs_scores and not self.data.topical:
            raise ValueError("training.teacher teaches nothing: add kl or margin_mse to training.losses")
        if self.training.needs_scores and teacher is None and not self.data.negatives:
            raise ValueError(
                "kl and margin_mse learn from training.teacher, or from the scores of the examples' own negatives: "
                "name a teacher, or set data.negatives"
            )
        mine = self.training.mine
        if mine is not None and (not self.data.negatives or self.data.sampling == "random"):
            raise ValueError("training.mine needs data.negatives, the number to mine, and its sampling first")
        if mine is not None and (self.data.false_negative_margin is not None or self.data.topical):
            raise ValueError("training.mine and data.false_negative_margin or topical exclude each other")
        return self

    def to_json(self) -> dict[str, object]:
        """Return the settings that decide the result, as JSON values."""
        return self.model_dump(mode="json")

    def made_from(self) -> dict[str, object]:
        """Return everything that decides the result, as JSON values: the settings, and fingerprints of local inputs."""
        return {**self.to_json(), INPUTS_KEY: fingerprints(self.inputs())}

    def planned(self) -> list[tuple[Stage, Any]]:
        """Return the stages that the recipe has, each with its settings, in order."""
        return [(stage, settings) for stage in STAGES if (settings := getattr(self, stage.name))]

    def other_models(self) -> list[str]:
        """Return the other models that the run loads: teachers."""
        training = self.training
        names = [*(training.teacher.models if training.teacher is not None else ()), training.sparse_teacher]
        names.append(None if self.pretrain is None else self.pretrain.teacher)
        return [name for name in names if name is not None]

    def inputs_of_stages(self) -> list[str]:
        """Return the models and sources of the stages, which make the model before the retrieval training."""
        places = [self.model]
        for stage, settings in self.planned():
            places += [name for key in stage.models if (name := getattr(settings, key))]
            places += map(self.place, stage.texts(settings))
        words = None if self.expand is None else self.expand.words
        return places if words is None else [*places, self.place(words)]

    def inputs(self) -> list[str]:
        """Return all models and sources that the run reads."""
        places = [*self.inputs_of_stages(), *self.other_models()]
        for source in self.examples():
            places += [source] if isinstance(source, str) else source.places()
        mine, evaluation = self.training.mine, self.evaluation
        places += [self.place(mine.corpus)] if mine is not None and mine.corpus is not None else []
        return places + [self.place(name) for name in (evaluation.datasets if evaluation is not None else ())]

    def check_needs(self) -> None:
        """Raise `RecipeError` if the recipe needs data, devices or code that are not shipped."""
        if self.needs:
            raise RecipeError(f"this recipe needs {'; '.join(self.needs)}. Once these are at hand, override needs=[]")

    def place(self, place: str) -> str:
        """Return a source of the recipe, with a relative path in `data_folder`."""
        scheme, colon, rest = place.partition(":")
        if colon and scheme in DERIVED:
            return f"{scheme}:{self.place(rest)}"
        if colon and scheme == "beir":
            return f"beir:{Path(self.data_folder) / rest}"
        return place if colon and scheme != "file" else str(Path(self.data_folder) / place)

    def examples(self) -> list[str | HardNegatives]:
        """Return the sources of the examples, each with its paths in `data_folder`."""
        keys = ("file", "corpus", "queries", "scores")
        return [
            self.place(source)
            if isinstance(source, str)
            else source.model_copy(update={key: self.place(file) for key in keys if (file := getattr(source, key))})
            for source in self.data.examples
        ]
