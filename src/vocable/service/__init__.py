"""A service for one index over HTTP: searches, explanations, sparse vectors and changes of documents.

The idea: requests wait in one queue, which knows how long its work takes. It joins equal work, and refuses what it
could not do in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Annotated

from annotated_types import Ge, Le
from typing_extensions import Doc, TypedDict

from vocable.core.hints import goes_with
from vocable.errors import ArgumentError
from vocable.options import RECORD_RULES, Default, Device, RerankOptions, WackyShare

TOKEN_VARIABLE = "VOCABLE_TOKEN"  # environment variable that the service and its clients read


class ServiceLimits(TypedDict, total=False):
    """Limits of the service: the size of a request, and the work that is accepted at once."""

    max_body: Annotated[int, Ge(1), Default(2_000_000), Doc("Bytes of a request; larger ones get status 413.")]
    max_characters: Annotated[int, Ge(1), Default(100_000), Doc("Characters of a text; longer ones get status 413.")]
    max_inputs: Annotated[int, Ge(1), Default(64), Doc("Texts, documents or ids of a request; more get status 413.")]
    max_k: Annotated[int, Ge(1), Default(1000), Doc("Results of a search; more get status 422.")]
    max_filter_depth: Annotated[
        int, Ge(1), Default(16), Doc("Nested and, or and not in a filter; deeper ones get status 422.")
    ]
    max_requests: Annotated[int, Ge(1), Default(512), Doc("Requests at a time; more get status 429.")]
    max_queue: Annotated[int, Ge(1), Default(1024), Doc("Waiting texts, searches and changes; more get status 429.")]
    batch_size: Annotated[int, Ge(1), Default(32), Doc("Texts of all requests that are encoded together.")]
    batch_wait: Annotated[
        float, Ge(0), Le(1000), Default(2.0), Doc("Milliseconds that a text waits for others to be encoded with.")
    ]
    search_threads: Annotated[
        int, Ge(1), Le(256), Default(8), Doc("Threads that search a server side by side; a folder has one.")
    ]
    cache_size: Annotated[int, Ge(0), Default(10_000), Doc("Encoded queries that are kept.")]
    timeout: Annotated[int, Ge(1), Le(3600), Default(30), Doc("Seconds of a request; slower ones get status 504.")]


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
    wacky_share: WackyShare
    watch: Annotated[str | PathLike[str] | None, Doc("The folder of the index, or a part of it: follow its files.")]
    browser: Annotated[bool, Doc("Show the page in a browser.")]
    mcp: Annotated[bool, Doc("Answer an agent on stdin and stdout (MCP) instead of HTTP, which has MCP at /mcp.")]
    log_queries: Annotated[bool, Doc("Write the text of queries into the log.")]
    allow_changed_model: Annotated[bool, Doc("Serve even if the model has changed since it made the index.")]
    device: Device


def _check_service(options: Mapping[str, object]) -> None:
    goes_with("wacky", "wacky_share")(options)
    of_http = (name for name in ("allow_host", "browser", "compare_with") if options.get(name))
    if options.get("mcp") and (name := next(of_http, None)):
        raise ArgumentError(f"`{name}` is for HTTP, not for `mcp` on stdin and stdout")


RECORD_RULES[ServiceOptions] = _check_service
