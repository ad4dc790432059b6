"""Commands that adapt a model: inspect, rescale, transfer, expand, vocabulary, pretrain, calibrate, inference-free."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import Field

from vocable.cli import adapting, asymmetric, expanding, pretraining, transferring, vocabularies
from vocable.cli.declare import Command, Loading, Output, Seed, Texts, imported
from vocable.errors import ArgumentError

ProbeTexts = Annotated[
    list[str], typer.Option("--texts", metavar="SOURCE"), Field(description="Probe texts, best from your own corpus.")
]
Steps = Annotated[int, Field(ge=1, description="Optimizer steps.")]


class Inspect(Loading):
    """See what a model needs before it is trained.

    Measures head, vocabulary and the start of a training, and ends with the next command.

    Example: vocable inspect bert-base-cased --target bert-base-uncased
    """

    verb: ClassVar[str] = "vocable.adapt.inspection:inspect"
    target: Annotated[str | None, Field(description="A tokenizer's folder or Hub id, to compare with.")] = None
    texts: ProbeTexts = ["pydocs:"]


class Adapting(Loading):
    """A command that makes a new model of one."""

    output: Output

    def call(self) -> Any:
        """Adapt the loaded model, and write the new one to the output folder, whole or not at all."""
        imported("vocable.storage:refuse_taken")(self.output)
        given = self.arguments()
        output = given.pop("output")
        adapted = imported(self.verb)(**given)
        imported("vocable.encoder.load:save_model")(adapted, output)
        return imported("vocable:provenance")(adapted)[-1]


class Rescale(Adapting):
    """Divide a model's output matrix by a factor.

    With auto, the factor is the smallest of 1, 2, 4 ... 32 that a training would
    start well from.

    Example: vocable rescale answerdotai/ModernBERT-base -o out --factor auto
    """

    verb: ClassVar[str] = "vocable.adapt.rescale:rescale"
    next_step: ClassVar[str] = "vocable inspect {output}"
    factor: Annotated[str, typer.Option(metavar="K"), Field(description="A number above 0, or auto.")]
    texts: ProbeTexts = ["pydocs:"]

    def arguments(self) -> dict[str, Any]:
        """The factor as a number, or "auto"."""
        try:
            factor: float | str = "auto" if self.factor == "auto" else float(self.factor)
        except ValueError as error:
            raise ArgumentError(f"--factor: a number above 0, or auto, not {self.factor!r}") from error
        return super().arguments() | {"factor": factor}


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
    texts: Annotated[
        list[str], typer.Option(metavar="SOURCE"), Field(description="Count the target's tokens here, for the prior.")
    ] = []
    neighbours: Annotated[
        list[str], typer.Option(metavar="TOKEN"), Field(description="Show what it was made of; may be repeated.")
    ] = []
    seed: Seed = 0


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
        list[str],
        typer.Option(metavar="SOURCE"),
        Field(description="Instead: the most frequent words of these texts; may be repeated."),
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
    steps: Steps
    batch_size: Annotated[int, Field(ge=1, description="Texts per step.")] = 32
    max_length: Annotated[int, Field(ge=1, description="Tokens per text.")] = 128
    masking: Annotated[
        Literal["uniform", "overlap-aware", "whole-word"],
        Field(description="overlap-aware: new tokens of a transferred model more often; whole-word: of an expanded."),
    ] = "uniform"
    masking_rate: Annotated[
        float | None, Field(description="Share of the tokens to guess, 0.3; of the words, 0.15.")
    ] = None
    new_token_weight: Annotated[
        float, Field(description="How often a new token is masked for a shared one, if overlap-aware.")
    ] = 2.0
    train: Annotated[Literal["all", "embeddings"], Field(description="embeddings: the transformer is frozen.")] = "all"
    train_bias: Annotated[bool, Field(description="With embeddings: the output bias, too.")] = False
    passes: Annotated[int | None, Field(ge=1, description="See no text more often; 1: only new texts.")] = None
    learning_rate: Annotated[float, Field(description="Peak of the schedule.")] = 3e-4
    schedule: Annotated[Literal["cosine", "linear"], Field(description="How the rate falls.")] = "cosine"
    schedule_steps: Annotated[
        int | None, Field(description="Steps of a longer run, of which this is the beginning.")
    ] = None
    save_every: Annotated[int, Field(ge=1, description="Steps between checkpoints.")] = 200
    seed: Seed = 0


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


class InferenceFree(Adapting):
    """Give a model queries that need no encoder.

    A query is its distinct tokens, each with a weight that is looked up, and
    documents are encoded as before. Train the result for good rankings.

    Example: vocable inference-free vocable-mini --texts pydocs: -o out
    """

    verb: ClassVar[str] = "vocable.encoder.roles:inference_free"
    next_step: ClassVar[str] = "vocable evaluate {output} --dataset SOURCE, or a recipe with model: {output}"
    texts: Annotated[
        list[str], typer.Option(metavar="SOURCE"), Field(description="Texts whose document frequencies give the IDF.")
    ] = []
    weights: Annotated[
        Literal["idf", "ones"], Field(description="Of a query's tokens: by the texts, or all the same.")
    ] = "idf"
    formula: Annotated[
        Literal["bm25", "log"], Field(description="log(1 + (n - df + 0.5) / (df + 0.5)), or log(n / df).")
    ] = "bm25"
    trainable: Annotated[bool, Field(description="Let a later training move the weights.")] = False


class Vocabulary(Command):
    """Train a normalized vocabulary on texts.

    Lower-case and without accents, for `vocable transfer` to move a model onto.
    With several sizes nothing is written: the table says how many tokens a word is
    cut into, and what share of the tokens the texts have too rarely to learn.

    Example: vocable vocabulary texts.txt -o vocabulary --size 20000
    """

    verb: ClassVar[str] = "vocable.adapt.vocabulary:vocabulary"
    texts: Texts
    size: Annotated[
        list[int], typer.Option(metavar="N"), Field(description="Tokens, special ones included; repeat it to compare.")
    ]
    type: Annotated[Literal["wordpiece", "bpe"], Field(description="bpe knows every character.")] = "wordpiece"
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output"),
        Field(description="Folder for the tokenizer; there only when it is whole."),
    ] = None


COMMANDS: list[type[Command]] = []
OLD = [
    adapting.inspect,
    adapting.rescale,
    transferring.transfer,
    expanding.expand,
    vocabularies.vocabulary,
    pretraining.pretrain,
    pretraining.calibrate,
    asymmetric.inference_free,
]
