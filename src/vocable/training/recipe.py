"""A training run as one typed recipe, read from YAML."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pretraining(_Part):
    """Masked language modelling before the retrieval training."""

    texts: list[str] = Field(min_length=1, description="places whose texts the model learns from")
    steps: PositiveInt
    batch_size: PositiveInt = 32
    gradient_accumulation: PositiveInt = 1
    max_length: int = Field(default=128, ge=8, description="tokens of a window, special tokens included")
    masking_rate: float = Field(default=0.3, gt=0, le=1)
    learning_rate: float = Field(default=3e-4, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    warmup_share: float = Field(default=0.06, ge=0, lt=1, description="share of the steps in which the rate rises")
    log_every: PositiveInt = 10
    save_every: PositiveInt = 200
