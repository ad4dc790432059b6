"""Commands that adapt a model: inspect, rescale, transfer, expand, vocabulary, pretrain, calibrate, inference-free."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import Field, field_validator, model_validator

from vocable.cli.declare import Command, DType, Loading, Model, Numbers, Output, Seed, Texts, imported, texts_of
from vocable.errors import DataError, VocableError
from vocable.tables import Table, short

PROBE_TEXTS = 1000  # read for calibrate, which uses the first 256 that are not empty
OWN_TERMS = "its terms are not its tokens: vocable.load reads it, stock loaders give the model it was made from"

ProbeTexts = Annotated[
    str, typer.Option(metavar="SOURCE"), Field(description="Probe texts, best from your own corpus.")
]
CountedTexts = Annotated[list[str], typer.Option(metavar="SOURCE")]


class Inspect(Command):
    """See what a model needs before it is trained.

    Measures head, vocabulary and the start of a training, and ends with the next command.

    Example: vocable inspect bert-base-cased --target bert-base-uncased
    """

    verb: ClassVar[str] = "vocable.adapt.inspection:inspect"
    model: Model
    target: Annotated[str | None, Field(description="A tokenizer's folder or Hub id, to compare with.")] = None
    texts: ProbeTexts = "pydocs:"


class Adapting(Loading):
    """A command that makes a new model of one, and prints the settings and figures of the step."""

    output: Output

    def call(self) -> Any:
        """Adapt the loaded model, and write the new one to the output folder, whole or not at all."""
        imported("vocable.storage:refuse_taken")(self.output)
        given = self.arguments()
        del given["output"]
        adapted = imported(self.verb)(**given)
        figures = self.figures(given["model"], adapted)
        imported("vocable.encoder.load:save_model")(adapted, self.output)
        return figures

    def figures(self, model: Any, adapted: Any) -> dict[str, Any]:
        """The last step of what was made of `model`, as JSON values."""
        step: dict[str, Any] = imported("vocable.encoder.provenance:provenance")(adapted)[-1]
        del step["verb"]
        return step


class Rescale(Adapting):
    """Divide a model's output matrix by a factor.

    With auto, the factor is the smallest of 1, 2, 4 ... 32 that a training would
    start well from.

    Example: vocable rescale answerdotai/ModernBERT-base -o out --factor auto
    """

    verb: ClassVar[str] = "vocable.adapt.rescale:rescale"
    next_step: ClassVar[str] = "vocable inspect {output}"
    factor: Annotated[str, typer.Option(metavar="K"), Field(description="A number above 0, or auto.")]
    texts: ProbeTexts = "pydocs:"

    @field_validator("factor")
    @classmethod
    def _number_or_auto(cls, factor: str) -> str:
        try:
            if factor == "auto" or 0 < float(factor) < float("inf"):
                return factor
        except ValueError:
            pass
        raise ValueError("a number above 0, or auto")

    def arguments(self) -> dict[str, Any]:
        """The factor as a number, or "auto" with the probe texts."""
        if self.factor != "auto":
            return super().arguments() | {"factor": float(self.factor), "texts": None}
        return super().arguments() | {"texts": imported("vocable.adapt.statistics:probe_texts")(self.texts)}

    def figures(self, model: Any, adapted: Any) -> dict[str, Any]:
        """The factor, and those that were tried."""
        return {"trials": [], **super().figures(model, adapted)}

    def text(self, result: dict[str, Any]) -> Any:
        """A row for each factor that was tried, the chosen one marked."""
        rows = [
            [
                f"{'> ' if trial['factor'] == result['factor'] else ''}{trial['factor']}",
                f"{trial['pooled_rate']:.1%}",
                f"{trial['terms_mean']:,.0f}",
                *(short(trial[name]) for name in ("score_mean", "score_std", "score_max")),
                f"{trial['accuracy']:.0%}",
                short(trial["loss"]),
                short(trial["chance"]),
            ]
            for trial in result["trials"]
        ]
        header = ["k", "active", "terms", "score", "std", "largest", "own first", "loss", "guessing"]
        return [*([Table("", header, rows)] if rows else []), f"output matrix divided by {result['factor']:g}"]


class Transfer(Adapting):
    """Give a model another vocabulary.

    Shared tokens keep their embeddings; new ones start near their meaning.

    Example: vocable transfer MODEL --target bert-base-uncased -o out
    """

    verb: ClassVar[str] = "vocable.adapt.transfer:transfer"
    next_step: ClassVar[str] = "vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware"
    target: Annotated[str, Field(description="Whose vocabulary: a model or a tokenizer, a folder or a Hub id.")]
    head_only: Annotated[bool, Field(description="Keep the tokenizer and replace the output terms alone.")] = False
    init: Annotated[
        Literal["semantic", "subtoken", "mean", "random-new", "random-all"],
        Field(description="Where new tokens start; semantic needs the target's model."),
    ] = "semantic"
    bias: Annotated[
        Literal["prior", "keep"],
        Field(description="The target's word frequencies, or the model's own output bias."),
    ] = "prior"
    texts: Annotated[CountedTexts, Field(description="Count the target's tokens here, for the prior.")] = []
    neighbours: Annotated[
        list[str], typer.Option(metavar="TOKEN"), Field(description="Show what it was made of; may be repeated.")
    ] = []
    seed: Seed = 0

    def arguments(self) -> dict[str, Any]:
        """All but the tokens to show."""
        given = super().arguments()
        del given["neighbours"]
        return given

    def figures(self, model: Any, adapted: Any) -> dict[str, Any]:
        """The step, and what the tokens to show were made of."""
        shown: list[Any] = []
        if self.neighbours:
            shown = imported("vocable.adapt.transfer:neighbours")(model, self.target, self.neighbours, init=self.init)
        return super().figures(model, adapted) | {"neighbours": [made._asdict() for made in shown]}

    def text(self, result: dict[str, Any]) -> Any:
        """A row for each class of tokens, what some were made of, and what was carried over."""
        rows = [
            [name, f"{count['matched']:,}", f"{count['total']:,}", f"{count['matched'] / count['total']:.1%}"]
            for name, count in result["classes"].items()
            if count["total"]
        ]
        lines: list[Any] = [Table("", ["tokens", "shared", "of", "share"], rows)]
        for made in result["neighbours"]:
            lines.append(f"\n{made['token']}: cut into {' '.join(made['subtokens']) or 'nothing'}; made of")
            lines += [f"  {weight:.3f}  {token}" for token, weight in made["made_of"]]
        new = f"{result['new_tokens']:,} new tokens: {self.init}"
        lines.append(f"\n{result['overlap']:.1%} of the target carried over, {new}")
        return [*lines, OWN_TERMS] if self.head_only else lines

    def following(self) -> str:
        """Calibration, where there is nothing to pre-train."""
        if self.head_only:
            return "vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
        return self.next_step


class Expand(Adapting):
    """Give a model whole words as output terms.

    The tokenizer stays: what the model reads is cut as before, and what it
    gives are words, as many as you like.

    Example: vocable expand vocable-mini --texts texts.txt --min-count 3 -o out
    """

    verb: ClassVar[str] = "vocable.adapt.expand:expand"
    next_step: ClassVar[str] = "vocable pretrain {output} TEXTS -o DIR --steps 500 --masking whole-word"
    words: Annotated[
        Path | None, typer.Option(metavar="FILE"), Field(description="A word per line, or in .jsonl a JSON string.")
    ] = None
    texts: Annotated[
        CountedTexts, Field(description="Instead: the most frequent words of these texts; may be repeated.")
    ] = []
    size: Annotated[int | None, Field(ge=1, description="Of texts: how many words, 100,000 by default.")] = None
    min_count: Annotated[int | None, Field(ge=1, description="Of texts: leave out words seen less often.")] = None
    splitter: Annotated[
        Literal["words", "whitespace"], Field(description="words: letters, digits, marks and _ in a row.")
    ] = "words"
    init: Annotated[
        Literal["mean", "semantic", "random"], Field(description="mean: of the decoder's rows of a word's tokens.")
    ] = "mean"
    target: Annotated[
        str | None, Field(description="For semantic: a model that has words as tokens, a folder or a Hub id.")
    ] = None
    seed: Seed = 0

    @model_validator(mode="after")
    def _check(self) -> Expand:
        if (not self.texts) == (self.words is None):
            raise ValueError("give either --texts, to take the most frequent words of, or --words, a file of them")
        if self.words is not None and not (self.size is None and self.min_count is None):
            raise ValueError("--size and --min-count go with --texts: all words of a file are taken")
        if (self.init == "semantic") != (self.target is not None):
            raise ValueError("--init semantic and --target go together")
        return self

    def arguments(self) -> dict[str, Any]:
        """The fields, without numbers that were not given."""
        return {
            name: value
            for name, value in super().arguments().items()
            if value is not None or name not in ("size", "min_count")
        }

    def text(self, result: dict[str, Any]) -> Any:
        """How much of the texts is covered, and how many words became terms."""
        lines = []
        if "covered" in result:
            per_word = f"{result['tokens_per_word']:.2f} tokens per word"
            lines.append(f"{result['covered']:.1%} of the words of the texts, {per_word}")
            if result["passed_over"]:
                lines.append(f"passed over, because the tokenizer cannot spell them: {result['passed_over']:,} words")
        return [*lines, f"{result['words']:,} words as terms: {self.init}", OWN_TERMS]


class Pretrain(Adapting):
    """Adapt a model by masked language modelling.

    Repeated after a kill, it goes on where it stopped. It ends with how well
    tokens of texts held out are guessed, before and after; new tokens of a
    model that `vocable transfer` made are counted apart. A model that
    `vocable expand` made takes --masking whole-word.

    Example: vocable pretrain bert-base-uncased texts.txt -o out --steps 1000
    """

    verb: ClassVar[str] = "vocable.training.pretrain:pretrain"
    resumable: ClassVar[bool] = True
    next_step: ClassVar[str] = "vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
    texts: Texts
    steps: Annotated[int, Field(ge=1, description="Optimizer steps.")]
    batch_size: Annotated[int, Field(ge=1, description="Texts per step.")] = 32
    gradient_accumulation: Annotated[int, Field(ge=1, description="Batches per step.")] = 1
    max_length: Annotated[int, Field(ge=8, description="Tokens per text.")] = 128
    masking: Annotated[
        Literal["uniform", "overlap-aware", "whole-word"],
        Field(description="overlap-aware: new tokens of a transferred model more often; whole-word: of an expanded."),
    ] = "uniform"
    masking_rate: Annotated[
        float | None, Field(gt=0, le=1, description="Share of the tokens to guess, 0.3; of the words, 0.15.")
    ] = None
    new_token_weight: Annotated[
        float, Field(gt=0, description="How often a new token is masked for a shared one, if overlap-aware.")
    ] = 2.0
    trainable: Annotated[Literal["all", "embeddings"], Field(description="embeddings: the transformer is frozen.")] = (
        "all"
    )
    train_bias: Annotated[bool, Field(description="With embeddings: the output bias, too.")] = False
    held_out: Annotated[int, Field(ge=0, description="Texts kept apart to be guessed, at most a tenth.")] = 256
    passes: Annotated[int | None, Field(ge=1, description="See no text more often; 1: only new texts.")] = None
    learning_rate: Annotated[float, Field(gt=0, description="Peak of the schedule.")] = 3e-4
    schedule: Annotated[Literal["cosine", "linear"], Field(description="How the rate falls.")] = "cosine"
    schedule_steps: Annotated[
        int | None, Field(ge=1, description="Steps of a longer run, of which this is the beginning.")
    ] = None
    warmup_share: Annotated[float, Field(ge=0, lt=1, description="Share of the steps in which the rate rises.")] = 0.06
    weight_decay: Annotated[float, Field(ge=0, description="Of AdamW.")] = 0.01
    dropout: Annotated[float, Field(ge=0, lt=1, description="Share of the activations.")] = 0.0
    dtype: DType = "auto"
    log_every: Annotated[int, Field(ge=1, description="Steps between lines of the log.")] = 10
    save_every: Annotated[int, Field(ge=1, description="Steps between checkpoints.")] = 200
    seed: Seed = 0

    @model_validator(mode="after")
    def _check(self) -> Pretrain:
        if self.train_bias and self.trainable == "all":
            raise ValueError("--train-bias goes with --trainable embeddings, everything learns without it")
        if self.schedule_steps is not None and self.schedule_steps < self.steps:
            raise ValueError(f"--schedule-steps: the schedule cannot be shorter than the run of {self.steps} steps")
        return self

    def call(self) -> Any:
        """Pre-train in the work folder beside the output, which stays there after a kill."""
        storage = import_module("vocable.storage")
        storage.refuse_existing(self.output)
        given = self.arguments()
        del given["output"]
        settings = self.model_dump(mode="json", exclude={"output", "as_json", "device"})
        with storage.resumable(self.output, settings | {"inputs": storage.fingerprint(*self.texts)}) as work:
            run, whole = work / "run", work / "whole"
            try:
                adapted = imported(self.verb)(**given, work=run)
            except VocableError:
                if imported("vocable.training.trainer:last_checkpoint")(run) is None:  # a mistake to be mended
                    shutil.rmtree(work)
                raise
            shutil.rmtree(whole, ignore_errors=True)
            imported("vocable.encoder.load:save_model")(adapted, whole)
            shutil.copy(run / "log.jsonl", whole / "pretrain.jsonl")
            storage.finish(work, self.output, whole)
        return self.figures(given["model"], adapted)

    def text(self, result: dict[str, Any]) -> Iterator[str]:
        """How well held-out tokens were guessed, before and after."""
        yield f"pre-trained for {self.steps:,} steps"
        if counts := result.get("words"):
            cut, without = f"{counts['cut']:,} that tokens cut across", f"{counts['without']:,} texts without any"
            yield f"words to guess: {counts['words']:,}; passed over: {cut}, {without}"
        for group, before in result["held_out"]["before"].items():
            after = result["held_out"]["after"][group]
            loss = f"loss {before['loss']:.3f} -> {after['loss']:.3f}"
            accuracy = f"accuracy {before['accuracy']:.1%} -> {after['accuracy']:.1%}"
            yield f"held-out tokens, {group} ({before['tokens']:,}): {loss}, {accuracy}"


class Calibrate(Adapting):
    """Choose how much of the vocabulary is active.

    The output bias is shifted, so that a text makes a chosen share of the terms active.

    Example: vocable calibrate adapted texts.txt -o out --activation-rate 0.05
    """

    verb: ClassVar[str] = "vocable.adapt.calibrate:calibrate"
    next_step: ClassVar[str] = "vocable inspect {output}"
    texts: Texts
    activation_rate: Annotated[float | None, Field(ge=0, le=1, description="Share of the vocabulary to be active.")] = (
        None
    )
    shift: Annotated[float | None, Field(description="Lower the output bias by this, in logits.")] = None
    level: Annotated[
        Literal["pooled", "token"], Field(description="Whose terms are counted: a text's or each token's.")
    ] = "pooled"
    max_length: Annotated[int, Field(ge=1, description="Tokens per text.")] = 128

    @model_validator(mode="after")
    def _check(self) -> Calibrate:
        if (self.activation_rate is None) == (self.shift is None):
            raise ValueError("give either --activation-rate or --shift")
        return self

    def arguments(self) -> dict[str, Any]:
        """The first texts, as a list."""
        given = super().arguments()
        probe = list(islice(given["texts"], PROBE_TEXTS))
        if not any(text.strip() for text in probe):
            raise DataError("no text to probe with", source=" ".join(self.texts))
        return given | {"texts": probe}

    def figures(self, model: Any, adapted: Any) -> dict[str, Any]:
        """The shift, and what is active before and after it."""
        step = super().figures(model, adapted)
        names = {"rate": "share", "mean": "mean", "p99": "p99"}
        active = {f"{name}_{when}": step[when][key] for when in ("before", "after") for name, key in names.items()}
        return {name: step[name] for name in ("level", "pooling", "shift")} | active

    def text(self, result: dict[str, Any]) -> Iterator[str]:
        """How the bias was moved, and how many terms are active."""
        shift, what = result["shift"], "text" if self.level == "pooled" else "token"
        moved = f"{'raised' if shift < 0 else 'lowered'} by {abs(shift):.3f}"
        yield f"bias {moved}, active {result['rate_before']:.2%} -> {result['rate_after']:.2%}"
        mean = f"mean {result['mean_before']:,.1f} -> {result['mean_after']:,.1f}"
        p99 = f"99th percentile {result['p99_before']:,.0f} -> {result['p99_after']:,.0f}"
        yield f"active terms of a {what}: {mean}, {p99}"


class InferenceFree(Adapting):
    """Give a model queries that need no encoder.

    A query is its distinct tokens, each with a weight that is looked up, and
    documents are encoded as before. Train the result for good rankings.

    Example: vocable inference-free vocable-mini --texts pydocs: -o out
    """

    verb: ClassVar[str] = "vocable.encoder.roles:inference_free"
    next_step: ClassVar[str] = "vocable evaluate {output} --dataset SOURCE, or a recipe with model: {output}"
    texts: Annotated[CountedTexts, Field(description="Texts whose document frequencies give the IDF.")] = []
    weights: Annotated[
        Literal["idf", "ones"], Field(description="Of a query's tokens: by the texts, or all the same.")
    ] = "idf"
    formula: Annotated[
        Literal["bm25", "log"], Field(description="log(1 + (n - df + 0.5) / (df + 0.5)), or log(n / df).")
    ] = "bm25"
    trainable: Annotated[bool, Field(description="Let a later training move the weights.")] = False

    @model_validator(mode="after")
    def _check(self) -> InferenceFree:
        if (self.weights == "idf") != bool(self.texts):
            raise ValueError("--weights idf needs --texts SOURCE, and --weights ones has none")
        return self

    def figures(self, model: Any, adapted: Any) -> dict[str, Any]:
        """The step, and how many tokens have a weight."""
        table = imported("vocable.encoder.roles:static_embedding")(adapted, "query")
        tokens = 0 if table is None else int((table.weight > 0).sum())
        return {"formula": None, **super().figures(model, adapted), "texts": self.texts, "tokens": tokens}

    def text(self, result: dict[str, Any]) -> Any:
        """How many tokens have a weight."""
        return f"{result['tokens']:,} tokens have a weight, and no encoder reads a query"


class Vocabulary(Command):
    """Train a normalized vocabulary on texts.

    Lower-case and without accents, for `vocable transfer` to move a model onto.
    With several sizes nothing is written: the table says how many tokens a word is
    cut into, and what share of the tokens the texts have too rarely to learn.

    Example: vocable vocabulary texts.txt -o vocabulary --size 20000
    """

    verb: ClassVar[str] = "vocable.adapt.vocabulary:vocabulary"
    next_step: ClassVar[str] = "vocable transfer MODEL --target {output} --init subtoken -o DIR"
    texts: Texts
    size: Annotated[Numbers, Field(description="Tokens, special ones included; several are compared.")]
    algorithm: Annotated[Literal["wordpiece", "bpe"], Field(description="bpe knows every character.")] = "wordpiece"
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output"),
        Field(description="Folder for the tokenizer; there only when it is whole."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """A stream of the texts, and the other fields."""
        return super().arguments() | {"texts": texts_of(self.texts)}


COMMANDS: list[type[Command]] = [
    Inspect,
    Rescale,
    Transfer,
    Expand,
    Vocabulary,
    Pretrain,
    Calibrate,
    InferenceFree,
]
