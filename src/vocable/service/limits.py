"""The limits of the service: what one request may ask for, and how much is taken on at once."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vocable.errors import ArgumentError


class Limits(BaseModel):
    """The further arguments of `vocable.serve`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_body: int = Field(default=2_000_000, ge=1, description="bytes of a request, more are answered with 413")
    max_characters: int = Field(default=100_000, ge=1, description="characters of a text, more are answered with 413")
    max_inputs: int = Field(
        default=64, ge=1, description="texts, documents or ids of a request, more are answered with 413"
    )
    max_k: int = Field(default=1000, ge=1, description="results of a search, more are answered with 422")
    max_filter_depth: int = Field(
        default=16, ge=1, description="and, or and not within each other in a filter, more are answered with 422"
    )
    max_requests: int = Field(default=512, ge=1, description="requests at a time, more are answered with 429")
    max_queue: int = Field(
        default=1024, ge=1, description="texts, searches and changes that wait, more are answered with 429"
    )
    batch_size: int = Field(default=32, ge=1, description="texts of all requests that are encoded together")
    batch_wait: float = Field(
        default=2.0, ge=0, le=1000, description="milliseconds that a text waits for others to be encoded with"
    )
    cache_size: int = Field(default=10_000, ge=0, description="encoded queries that are kept")
    timeout: int = Field(default=30, ge=1, le=3600, description="seconds of a request, then it is answered with 504")


def checked_limits(given: dict[str, Any]) -> Limits:
    """The limits; `ArgumentError` for one that is unknown or out of its range."""
    try:
        return Limits.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ArgumentError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}, not {first['input']!r}") from error
