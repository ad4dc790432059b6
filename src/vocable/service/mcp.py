"""The service as tools of agents, by the Model Context Protocol (MCP): under /mcp, or on stdin and stdout.

The tools take the requests of the service, and its limits hold. The SDK is imported when it is first used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from vocable import __version__
from vocable.collection.records import Hit
from vocable.core.faults import first_fault
from vocable.core.graphemes import beginning
from vocable.core.tables import shortened
from vocable.errors import ArgumentError, VocableError, require_extra
from vocable.explanation.explain import json_values
from vocable.service.batching import OverloadedError
from vocable.service.schemas import ExplainRequest, Id, JSONBody, SearchRequest, fault
from vocable.service.service import NotFoundError, Service, TooLargeError

logger = logging.getLogger("vocable.service.log")

AGENT_OPTIONS = ("query", "plain", "k", "offset", "filter", "explain")  # options of a search that agents are told of
MAX_ANSWER = 20_000  # bytes of the hits of an answer, of which an agent reads all; each hit has an equal share
MAX_HIT_TEXT = 1000  # characters of a hit's text
LEAST_HIT_TEXT = 200
MAX_FIELD_TEXT = 200  # characters of a field
MAX_FIELDS = 40  # fields in a description, and of a hit
IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_.-]{0,39}")  # the name of a field that an agent is told
MENDABLE = (VocableError, TooLargeError, NotFoundError, OverloadedError)  # errors that an agent can mend


class ReadRequest(JSONBody):
    """A part of a document to read."""

    id: Id = Field(description="Id of the document, as a search returns it.")
    start: int = Field(0, ge=0, description="First character; `start` of a hit is where its best part begins.")
    characters: int = Field(5_000, ge=1, le=16_000, description="Most characters of the text that are returned.")


class ServiceTool(NamedTuple):
    """A tool: its description, where {index} stands for the index, its request and its function."""

    description: str
    request: type[JSONBody]
    call: Callable[[Service, Any], Awaitable[Any]]


async def _search(service: Service, request: SearchRequest) -> dict[str, object]:
    if "sections" not in request.model_fields_set:
        request = request.model_copy(update={"sections": False})
    answer = await service.search(request)
    values = {name: value for name, value in answer.to_json().items() if name not in ("id", "query")}
    hits = answer.pages or answer.hits
    return values | {"hits": [_shown(_found(hit), MAX_ANSWER // len(hits)) for hit in hits]}


def _shown(hit: dict[str, Any], most: int) -> dict[str, Any]:
    """Return a hit of at most `most` bytes, as far as its fields and the end of its text can be left out."""
    hit = _within(hit, most)
    over = _size(hit) - most
    return hit | {"text": beginning(hit["text"], max(LEAST_HIT_TEXT, len(hit["text"]) - over))} if over > 0 else hit


def _found(hit: Hit) -> dict[str, object]:
    """Return a hit with the beginning of its text, or of its best passage."""
    text = (hit.passage or hit.document).text
    values = hit.to_json() | {"text": beginning(text, MAX_HIT_TEXT)}
    values["title"] = beginning(hit.document.title, MAX_FIELD_TEXT)
    if fields := [*hit.document.fields.items()]:
        values["fields"] = {name: _short(value) for name, value in fields[:MAX_FIELDS]}
        if len(fields) > MAX_FIELDS:
            values["fields_left_out"] = len(fields) - MAX_FIELDS
    if hit.snippet is not None and len(hit.document.text) > MAX_HIT_TEXT:
        values["start"] = hit.snippet.start
    return {name: value for name, value in values.items() if name not in ("passage", "snippet")}


def _within(values: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the values of a document with as many fields as there is room for in `most` bytes, the shortest first."""
    fields, left_out = dict(values.get("fields", {})), values.get("fields_left_out", 0)
    while fields and _size(values) > most:
        del fields[max(fields, key=lambda name: _size(fields[name]))]
        left_out += 1
        values = values | {"fields": fields, "fields_left_out": left_out}
    return values


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _short(value: object) -> object:
    """Return the value of a field, or the beginning of its text or JSON if it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_FIELD_TEXT else beginning(text, MAX_FIELD_TEXT)


async def _read(service: Service, request: ReadRequest) -> dict[str, object]:
    [document] = await service.get([request.id])
    if document is None:
        raise NotFoundError(f"there is no document {request.id!r}")
    text, start = document.text, request.start
    if start > len(text):
        raise ArgumentError(f"start must be at most {len(text):,}, the characters of the document, not {start:,}")
    end = min(start + request.characters, len(text))
    part: dict[str, object] = {"start": start, "text": text[start:end], "characters": len(text)}
    if end < len(text):
        part["next"] = end
    return _within(document._asdict() | {"fields": dict(document.fields)} | part, MAX_ANSWER)


TOOLS = {
    "search": ServiceTool(
        "Search {index}. Returns the best documents for a question or keywords, best first, with id, title, fields and "
        f"the beginning of the text, at most {MAX_HIT_TEXT:,} characters; … ends a longer text, or a field of over "
        f"{MAX_FIELD_TEXT}; `fields_left_out` counts further fields. `read` the rest, from the hit's `start`. A page "
        "is one hit, with further `sections`; `copies` are ids of hits with the same text. Matches by meaning as well "
        "as by words. Scores compare only within one search. `offset` gets further hits.",
        SearchRequest,
        _search,
    ),
    "explain": ServiceTool(
        "Explain why a document of {index} was found: the terms that it shares with the query, and their parts of the "
        "score. Give `query` and the `id` of a hit, or a `document` of your own text; `query` alone returns the terms "
        "that it is searched by.",
        ExplainRequest,
        Service.explain,
    ),
    "read": ServiceTool(
        "Read a document of {index} by its id, in parts if it is long: `next` is the `start` of the next part, "
        "`characters` the length of the whole text.",
        ReadRequest,
        _read,
    ),
}


def _schema(request: type[JSONBody]) -> dict[str, Any]:
    """Return the schema of a request, without the options of a search that no agent needs."""
    schema = request.model_json_schema()
    if request is SearchRequest:
        properties = {name: schema["properties"][name] for name in AGENT_OPTIONS}
        return {"type": "object", "properties": properties, "required": ["query"], "additionalProperties": False}
    return schema


async def _about(service: Service) -> str:
    """Describe the index: its title or its name without its place, its size, the fields for filters.

    Only identifiers are named: with other names of fields, a writer of documents could speak to the agent.
    """
    fields = sorted(name for name in service.collection.searcher.known_fields or () if IDENTIFIER.fullmatch(name))
    listed = ", ".join(fields[:MAX_FIELDS]) + ", …" * (len(fields) > MAX_FIELDS)
    count = await service.count()
    size = "documents" if count is None else f"{count:,} documents"
    return f"{service.title!r} ({size}{f'; fields: {listed}' if fields else ''})"


async def call(service: Service, name: str, arguments: dict[str, Any]) -> tuple[Any, bool]:
    """Return the answer of a tool as JSON values, and False; or the error in one line, and True."""
    seconds = service.limits["timeout"]
    try:
        if (tool := TOOLS.get(name)) is None:
            raise NotFoundError(f"there is no tool {shortened(name, 80)!r}, but {', '.join(TOOLS)}")
        request = tool.request.model_validate(arguments)
        if isinstance(request, SearchRequest | ExplainRequest) and not (request.query or "").strip():
            raise ArgumentError("query is missing: give a question or keywords")
        async with asyncio.timeout(seconds):
            return json_values(await tool.call(service, request)), False
    except ValidationError as error:
        return fault(first_fault(error.errors())), True
    except TimeoutError:
        return f"not done within {seconds} s", True
    except MENDABLE as error:
        return service.told(error), True
    except Exception as error:
        line = {"event": "tool", "tool": name, "error": f"{type(error).__name__}: {error}"}
        logger.error("tool", extra={"line": line}, exc_info=error)
        return "internal error: the log has more", True


def tool_server(current: Callable[[], Service]) -> Any:
    """Return the SDK's server of the tools; `MissingExtraError` without the SDK."""
    lowlevel = require_extra("mcp.server.lowlevel", "mcp")
    types = require_extra("mcp_types", "mcp")

    async def list_tools(context: object, page: object) -> Any:
        about, reads = await _about(current()), types.ToolAnnotations(read_only_hint=True)
        described = {
            name: (tool.description.format(index=about), _schema(tool.request)) for name, tool in TOOLS.items()
        }
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=description, input_schema=schema, annotations=reads)
                for name, (description, schema) in described.items()
            ]
        )

    async def call_tool(context: object, asked: Any) -> Any:
        value, failed = await call(current(), asked.name, asked.arguments or {})
        text = value if failed else json.dumps(value, ensure_ascii=False)
        content = [types.TextContent(text=text)]
        return types.CallToolResult(content=content, structured_content=None if failed else value, is_error=failed)

    return lowlevel.Server("vocable", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


class ToolEndpoint:
    """The ASGI application of the tools over streamable HTTP; each request stands alone, without a session."""

    def __init__(self, current: Callable[[], Service]) -> None:
        self._current = current

    @cached_property
    def _opened(self) -> tuple[Any, Any]:
        managers = require_extra("mcp.server.streamable_http_manager", "mcp")
        return managers.StreamableHTTPSessionManager, tool_server(self._current)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        manager_class, server = await asyncio.to_thread(lambda: self._opened)  # the import takes a second
        size = self._current().limits["max_body"]
        manager = manager_class(server, json_response=True, stateless=True, max_request_body_size=size)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def serve_stdio(service: Service) -> None:
    """Answer one client on stdin and stdout until it closes them; all other output goes to stderr."""
    server, stdio = tool_server(lambda: service), require_extra("mcp.server.stdio", "mcp")

    def end() -> None:
        service.close()
        os._exit(0)  # a thread waits for stdin, which nothing can interrupt

    async def converse() -> None:
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, end)
        async with stdio.stdio_server() as streams:
            await server.run(*streams, server.create_initialization_options())

    try:
        asyncio.run(converse())
    finally:
        service.close()
