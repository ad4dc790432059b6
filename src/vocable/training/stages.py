"""What a recipe may do to its backbone before any training, in this order:

    lowercase    the tokenizer lower-cases its input and keeps its vocabulary
    transfer     the model moves to another tokenizer's vocabulary, as a whole or with its output alone
    expand       the output terms become whole words, of texts or a list
    rescale      the output matrix is divided by a factor

Then come `pretrain`, `calibrate` and `training`, so that pre-training adapts the embeddings that the transfer made, and
the bias is calibrated last, on the logits that the retrieval training will see.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from vocable.training.part import Part

Init = Literal["semantic", "subtoken", "mean", "random-new", "random-all"]


class Transfer(Part):
    """The move to another vocabulary (paper 001, sections 4.2.1 and 4.2.2)."""

    target: str = Field(description="model or tokenizer whose vocabulary is wanted: built-in name, folder or Hub id")
    head_only: bool = Field(default=False, description="the tokenizer is kept, and only the output terms are replaced")
    init: Init = Field(default="semantic", description="what the embeddings of new tokens are made of")
    bias: Literal["prior", "keep"] = Field(
        default="prior", description="prior: the target's z-scored bias (eq. 10); keep: the source's, its mean if new"
    )
    texts: list[str] = Field(
        default=[], description="places of texts whose token counts stand in for the bias of a target without a head"
    )


class Expansion(Part):
    """An output vocabulary of whole words (paper 004, appendix B.1): the most frequent of texts, or those of a list."""

    texts: list[str] = Field(default=[], description="places of texts whose most frequent words are the terms")
    size: PositiveInt = Field(default=100_000, description="of texts: how many words, if there are so many")
    min_count: PositiveInt = Field(default=1, description="of texts: words seen less often are left out")
    words: str | None = Field(default=None, description="instead: a file of words, one a line, or of JSON strings")
    splitter: Literal["words", "whitespace"] = Field(default="words", description="what a word of a text is")
    init: Literal["mean", "semantic", "random"] = Field(default="mean", description="what a word's row is made of")
    target: str | None = Field(default=None, description="of semantic: a model that has words as tokens")

    @model_validator(mode="after")
    def _texts_or_words(self) -> Expansion:
        if bool(self.texts) == (self.words is not None):
            raise ValueError("give either texts, to take the most frequent words of, or words, a file of them")
        return self

    @model_validator(mode="after")
    def _semantic_looks_at_a_target(self) -> Expansion:
        if (self.init == "semantic") != (self.target is not None):
            raise ValueError("init semantic and target go together")
        return self


class Rescaling(Part):
    """The division of the output matrix, tied or not, by a constant (paper 000, eq. 6)."""

    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"]
    texts: str | None = Field(default=None, description="place of the probe texts from which auto chooses")

    @model_validator(mode="after")
    def _auto_looks_at_texts(self) -> Rescaling:
        if self.factor == "auto" and self.texts is None:
            raise ValueError("factor auto needs texts, the place of the probe texts")
        return self
