"""Commands that adapt a model: inspect, rescale, transfer, expand, vocabulary, pretrain, calibrate, inference-free."""

from __future__ import annotations

import math
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from vocable import HOMES, imported
from vocable.cli.declare import Command, Loading, Model, Numbers, Output, Reading, Texts
from vocable.errors import ArgumentError, DataError

ProbeTexts = Annotated[str, typer.Option(metavar="SOURCE", help="Probe texts, best from your own corpus.")]
CountedTexts = Annotated[list[str], typer.Option(metavar="SOURCE")]


class Inspect(Command):
    """See what a model needs before it is trained.

    Measures head, vocabulary and the start of a training, and ends with the next command.

    Example: vocable inspect bert-base-cased --target bert-base-uncased
    """

    python_only: ClassVar[tuple[str, ...]] = ("tokenizer",)
    model: Model
    texts: ProbeTexts = "pydocs:"


class Adapting(Reading, Loading):
    """A command that makes a new model of one, and prints the settings and figures of the step."""

    output: Output

    def call(self) -> Any:
        """Adapt the loaded model, and write the new one to the output folder, whole or not at all."""
        storage, made_from = import_module("vocable.storage"), self.made_from()
        done = storage.finished(self.output, made_from)
        if not done:
            storage.refuse_taken(self.output)
        given = self.arguments()
        del given["output"]
        loading = import_module("vocable.encoder.load")
        adapted = loading.load(self.output) if done else imported(HOMES[self.verb()])(**given)
        figures = self.figures(given["model"], adapted)
        if not done:
            loading.save_model(adapted, self.output, made_from)
        return figures

    def made_from(self) -> dict[str, Any]:
        """All that decides the result, as `vocable.storage.finished` takes it."""
        left_out = ("output", "as_json", "device", "neighbours", "skip_bad")
        values = {name: value for name, value in vars(self).items() if name not in left_out}
        kept = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        names = [name for value in kept.values() for name in (value if isinstance(value, list) else [value])]
        inputs = imported("vocable.fingerprint:fingerprint")(*(name for name in names if isinstance(name, str)))
        return kept | {"inputs": inputs}

    def figures(self, model: Any, adapted: Any) -> Any:
        """The last step of what was made of `model`, which prints itself."""
        return imported(HOMES["provenance"])(adapted)[-1]


class Rescale(Adapting):
    """Divide a model's output matrix by a factor.

    With auto, the factor is the smallest of 1, 2, 4 ... 32 that a training would
    start well from.

    Example: vocable rescale answerdotai/ModernBERT-base -o out --factor auto
    """

    next_step: ClassVar[str] = "vocable inspect {output}"
    factor: Annotated[str, typer.Option(metavar="K", help="A number above 0, or auto.")]
    texts: ProbeTexts = "pydocs:"

    def arguments(self) -> dict[str, Any]:
        """The factor as a number, or "auto" with the probe texts."""
        if self.factor == "auto":
            return super().arguments() | {"texts": imported("vocable.adapt.statistics:probe_texts")(self.texts)}
        factor = 0.0
        with suppress(ValueError):
            factor = float(self.factor)
        if not 0 < factor < math.inf:
            raise ArgumentError(f"factor must be a number above 0, or auto, not {self.factor!r}")
        return super().arguments() | {"factor": factor, "texts": None}


class Transfer(Adapting):
    """Give a model another vocabulary.

    Shared tokens keep their embeddings; new ones start near their meaning.

    Example: vocable transfer MODEL --target bert-base-uncased -o out
    """

    next_step: ClassVar[str] = "vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware"
    texts: CountedTexts = []
    neighbours: Annotated[list[str], typer.Option(metavar="TOKEN", help="Show what a new token was made of.")] = []

    def arguments(self) -> dict[str, Any]:
        """All but the tokens to show."""
        given = super().arguments()
        del given["neighbours"]
        return given

    def figures(self, model: Any, adapted: Any) -> Any:
        """The step, and what the tokens to show were made of."""
        step = super().figures(model, adapted)
        shown: list[Any] = []
        if self.neighbours:
            shown = imported("vocable.adapt.transfer:neighbours")(model, self.target, self.neighbours, init=self.init)
        return {"step": step, "neighbours": shown}

    def show(self, result: Any) -> None:
        """Print the neighbours between the table and the other lines."""
        if self.as_json:
            result = result["step"].to_json() | {"neighbours": [made._asdict() for made in result["neighbours"]]}
        super().show(result)

    def text(self, result: dict[str, Any]) -> Any:
        """The step, and the source tokens of each new one."""
        return [result["step"], *result["neighbours"]]

    def following(self) -> str:
        """Calibration, where there is nothing to pre-train."""
        if self.head_only:
            return "vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
        return self.next_step


class ExpandVocabulary(Adapting):
    """Give a model whole words as output terms.

    The tokenizer stays: what the model reads is cut as before, and what it
    gives are words, as many as you like.

    Example: vocable expand-vocabulary vocable-mini --texts texts.txt --min-count 3 -o out
    """

    next_step: ClassVar[str] = "vocable pretrain {output} TEXTS -o DIR --steps 500 --masking whole-word"
    words: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="A word per line, or in .jsonl a JSON string.")
    ] = None
    texts: CountedTexts = []
    size: Annotated[int | None, typer.Option(help="With --texts: how many words, 100,000 by default.")] = None
    min_count: Annotated[int | None, typer.Option()] = None
    splitter: Annotated[Literal["words", "whitespace"], typer.Option()]

    def arguments(self) -> dict[str, Any]:
        """The values, without numbers that were not given."""
        if (not self.texts) == (self.words is None):
            raise ArgumentError("give either --texts, to take the most frequent words of, or --words, a file of them")
        if self.words is not None and not (self.size is None and self.min_count is None):
            raise ArgumentError("--size and --min-count go with --texts: all words of a file are taken")
        if (self.init == "semantic") != (self.target is not None):
            raise ArgumentError("--init semantic and --target go together")
        numbers = ("size", "min_count")
        return {name: value for name, value in super().arguments().items() if value is not None or name not in numbers}


class Pretrain(Adapting):
    """Adapt a model by masked language modelling.

    Repeated after a kill, it goes on where it stopped. It ends with how well
    tokens of texts held out are guessed, before and after; new tokens of a
    model that `vocable transfer` made are counted apart. A model that
    `vocable expand-vocabulary` made takes --masking whole-word. With --teacher it learns
    the logits of a sparse model instead of guessing; with --classes it learns
    which of so many clusters of a dense teacher's embeddings a text is in.

    Example: vocable pretrain bert-base-uncased texts.txt -o out --steps 1000
    """

    python_only: ClassVar[tuple[str, ...]] = ("work",)
    settings: ClassVar[str] = "vocable.training.settings:PretrainSettings"
    resumable: ClassVar[bool] = True
    next_step: ClassVar[str] = "vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
    texts: Texts

    def call(self) -> Any:
        """Pre-train into the output folder."""
        given, loaded = Command.arguments(self), list[Any]()
        for name in ("output", "skip_bad"):
            del given[name]
        options = {name: given.pop(name) for name in self.loading}
        name = given.pop("model")

        def load() -> Any:
            named = {key: value for key, value in options.items() if value}
            loaded.append(imported("vocable.encoder.load:load")(name, **named))
            return loaded[0]

        pretrain_folder = imported("vocable.training.pretraining.pretrain:pretrain_folder")
        adapted = pretrain_folder(self.output, self.made_from(), load, given.pop("texts"), **given)
        return self.figures(loaded[0] if loaded else None, adapted)


class Calibrate(Adapting):
    """Choose how much of the vocabulary is active.

    The output bias is shifted, so that a text makes a chosen share of the terms active.

    Example: vocable calibrate adapted texts.txt -o out --activation-rate 0.05
    """

    next_step: ClassVar[str] = "vocable inspect {output}"
    texts: Texts

    def arguments(self) -> dict[str, Any]:
        """The first texts, as a list."""
        if (self.activation_rate is None) == (self.shift is None):
            raise ArgumentError("give either --activation-rate or --shift")
        given = super().arguments()
        probe = list(islice((text for text in given["texts"] if text.strip()), self.count))
        if not probe:
            raise DataError("no text to probe with", source=" ".join(self.texts))
        return given | {"texts": probe}


class MakeInferenceFree(Adapting):
    """Give a model queries that need no encoder.

    A query is its distinct tokens, each with a weight that is looked up, and
    documents are encoded as before. Train the result for good rankings.

    Example: vocable make-inference-free vocable-mini --texts pydocs: -o out
    """

    next_step: ClassVar[str] = "vocable evaluate {output} --dataset SOURCE, or a recipe with model: {output}"
    texts: CountedTexts = []

    def arguments(self) -> dict[str, Any]:
        """The model and the texts; of mean weights these are the queries of training examples."""
        given, read = super().arguments(), imported("vocable.data:read_examples")
        if self.weights == "mean" and self.texts:
            streams = [read(source) for source in self.texts]
            given["texts"] = (example.query for stream in streams for example in stream)
        return given


class TrainVocabulary(Reading):
    """Train a normalized vocabulary on texts.

    Lower-case and without accents, for `vocable transfer` to move a model onto.
    With several sizes nothing is written: the table says how many tokens a word is
    cut into, and what share of the tokens the texts have too rarely to learn.

    Example: vocable train-vocabulary texts.txt -o vocabulary --size 20000
    """

    next_step: ClassVar[str] = "vocable transfer MODEL --target {output} --init subtoken -o DIR"
    texts: Texts
    size: Numbers
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the tokenizer; there only when it is whole.")
    ] = None


COMMANDS: list[type[Command]] = [
    Inspect,
    Rescale,
    Transfer,
    ExpandVocabulary,
    TrainVocabulary,
    Pretrain,
    Calibrate,
    MakeInferenceFree,
]
