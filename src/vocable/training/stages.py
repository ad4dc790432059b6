"""What a recipe may do to its backbone before any training, in this order:

    lowercase    the tokenizer lower-cases its input and keeps its vocabulary
    transfer     the model moves to another tokenizer's vocabulary, as a whole or with its output alone
    rescale      the output matrix is divided by a factor

Then come `pretrain`, `calibrate` and `training`, so that pre-training adapts the embeddings that the transfer made, and
the bias is calibrated last, on the logits that the retrieval training will see.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

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


class Rescaling(Part):
    """The division of the output matrix, tied or not, by a constant (paper 000, eq. 6)."""

    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"]
    texts: str | None = Field(default=None, description="place of the probe texts from which auto chooses")

    @model_validator(mode="after")
    def _auto_looks_at_texts(self) -> Rescaling:
        if self.factor == "auto" and self.texts is None:
            raise ValueError("factor auto needs texts, the place of the probe texts")
        return self
