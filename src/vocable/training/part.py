"""What all parts of a recipe have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Keys of a recipe that belong together: unknown ones are refused, and none is changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
