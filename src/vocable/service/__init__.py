"""A service for one index over HTTP: searches, explanations, sparse vectors and changes of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Annotated

from annotated_types import Ge, Gt, Le
from typing_extensions import Doc, TypedDict

from vocable.core.hints import goes_with
from vocable.errors import ArgumentError
from vocable.options import RECORD_RULES, Device, RerankOptions

TOKEN_VARIABLE = "VOCABLE_TOKEN"  # environment variable that the service and its clients read


class ServiceLimits(TypedDict, total=False):
    """Limits of the service: the size of a request, and the work that is accepted at once."""

    max_body: Annotated[int, Ge(1), Doc("Bytes of a request, 2,000,000 by default; larger ones get status 413.")]
    max_characters: Annotated[int, Ge(1), Doc("Characters of a text, 100,000 by default; longer ones get status 413.")]
    max_inputs: Annotated[int, Ge(1), Doc("Texts, documents or ids of a request, 64 by default; more get status 413.")]
    max_k: Annotated[int, Ge(1), Doc("Results of a search, 1,000 by default; more get status 422.")]
    max_filter_depth: Annotated[
        int, Ge(1), Doc("Nested and, or and not in a filter, 16 by default; deeper ones get status 422.")
    ]
    max_requests: Annotated[int, Ge(1), Doc("Requests at a time, 512 by default; more get status 429.")]
    max_queue: Annotated[int, Ge(1), Doc("Waiting texts, searches and changes, 1,024 by default; more get status 429.")]
    batch_size: Annotated[int, Ge(1), Doc("Texts of all requests that are encoded together, 32 by default.")]
    batch_wait: Annotated[
        float, Ge(0), Le(1000), Doc("Milliseconds that a text waits for others to be encoded with, 2 by default.")
    ]
    cache_size: Annotated[int, Ge(0), Doc("Encoded queries that are kept, 10,000 by default.")]
    timeout: Annotated[int, Ge(1), Le(3600), Doc("Seconds of a request, 30 by default; slower ones get status 504.")]


class ServiceOptions(ServiceLimits, RerankOptions, total=False):
    """Settings of the service."""

    allow_host: Annotated[
        Sequence[str] | None, Doc("Host name that requests may use without a token, besides addresses and localhost.")
    ]
    title: Annotated[str | None, Doc("Heading of the page; by default the name of the index.")]
    compare_with: Annotated[str | PathLike[str] | None, Doc("Place of a second index to show beside the first.")]
    engine_options: Annotated[
        str | None, Doc("Options of the engine for a search, such as partial=true of a server (docs/engines.md).")
    ]
    wacky: Annotated[str | PathLike[str] | None, Doc("Scores of vocable measure-wackiness: mark the wacky terms.")]
    wacky_share: Annotated[float | None, Gt(0), Le(1), Doc("Share of the scored terms that is wacky, 0.1 by default.")]
    browser: Annotated[bool, Doc("Show the page in a browser.")]
    mcp: Annotated[bool, Doc("Answer an agent on stdin and stdout (MCP) instead of HTTP, which has MCP at /mcp.")]
    log_queries: Annotated[bool, Doc("Write the text of queries into the log.")]
    allow_changed_model: Annotated[bool, Doc("Serve even if the model has changed since it made the index.")]
    device: Device


def _check_service(options: Mapping[str, object]) -> None:
    goes_with("rerank", "rerank_depth", "rerank_batch_size", "rerank_ms")(options)
    if options.get("wacky_share") is not None and options.get("wacky") is None:
        raise ArgumentError("`wacky_share` goes with `wacky`")
    of_http = (name for name in ("allow_host", "browser", "compare_with") if options.get(name))
    if options.get("mcp") and (name := next(of_http, None)):
        raise ArgumentError(f"`{name}` is for HTTP, not for `mcp` on stdin and stdout")


RECORD_RULES[ServiceOptions] = _check_service

DEFAULT_LIMITS: ServiceLimits = {
    "max_body": 2_000_000,
    "max_characters": 100_000,
    "max_inputs": 64,
    "max_k": 1000,
    "max_filter_depth": 16,
    "max_requests": 512,
    "max_queue": 1024,
    "batch_size": 32,
    "batch_wait": 2.0,
    "cache_size": 10_000,
    "timeout": 30,
}
