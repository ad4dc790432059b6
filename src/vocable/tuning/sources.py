"""Sources of a tuning besides its documents, as options: queries of people, teachers, and a writer of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from typing_extensions import Doc, TypedDict

from vocable.errors import ArgumentError
from vocable.options import RECORD_RULES


class TuningSources(TypedDict, total=False):
    """Sources of a tuning besides its documents."""

    queries: Annotated[
        str | None, Doc("Source of queries of people; judged queries join the exam, the others are learned from.")
    ]
    judgments: Annotated[str | None, Doc("Source of judgments of the queries.")]
    teacher: Annotated[Sequence[str], Doc("Dense or sparse encoder to learn from, too.")]
    generator: Annotated[str | None, Doc("Causal or sequence-to-sequence model that writes questions.")]


def _check_sources(options: Mapping[str, object]) -> None:
    if options.get("judgments") is not None and options.get("queries") is None:
        raise ArgumentError("--judgments needs --queries")
    if isinstance(options.get("teacher"), str):
        raise ArgumentError("teacher must be a list of names, not one str")


RECORD_RULES[TuningSources] = _check_sources
