"""The service as tools of agents, by the Model Context Protocol (MCP): under /mcp, or on stdin and stdout.

Pages are also resources, which a person may choose. The tools take the requests of the service, and its limits hold.
The SDK is imported when it is first used.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pydantic import Field, ValidationError

from vocable import __version__
from vocable.collection.collection import Collection
from vocable.collection.groups import page_of
from vocable.collection.records import Hit
from vocable.core.faults import first_fault
from vocable.core.graphemes import beginning
from vocable.core.tables import shortened
from vocable.data.folder import FOLLOWING
from vocable.errors import ArgumentError, VocableError, require_extra
from vocable.explanation.explain import json_values
from vocable.service.batching import OverloadedError
from vocable.service.listing import first_sections, pages, whole_page
from vocable.service.schemas import ExplainRequest, Id, JSONBody, SearchRequest, fault
from vocable.service.service import NotFoundError, Service, TooLargeError

logger = logging.getLogger("vocable.service.log")

AGENT_OPTIONS = ("query", "plain", "k", "offset", "filter", "explain")  # options of a search that agents are told of
MAX_ANSWER = 20_000  # bytes of the hits of an answer, of which an agent reads all; each hit has an equal share
MAX_HIT_TEXT = 1000  # characters of a hit's text
LEAST_HIT_TEXT = 200
MAX_READ = 16_000  # characters of a document or page in an answer
MAX_FIELD_TEXT = 200  # characters of a field
MAX_FIELDS = 40  # fields in a description, and of a hit
IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_.-]{0,39}")  # the name of a field that an agent is told
SCHEME, TEXT, RESOURCES = "vocable:", "text/plain", 100  # of resources: their addresses, type, and number in a list
MENDABLE = (VocableError, TooLargeError, NotFoundError, OverloadedError)  # errors that an agent can mend


class ReadRequest(JSONBody):
    """A part of a document or page to read."""

    id: Id = Field(description="Id of a document as a search returns it, or of a page: `group` of a hit.")
    start: int = Field(0, ge=0, description="First character; `start` of a hit is where its best part begins.")
    characters: int = Field(5_000, ge=1, le=MAX_READ, description="Most characters of the text that are returned.")


class ListRequest(JSONBody):
    """Pages to list."""

    pattern: Id = Field("*", description="Names of pages, where * stands for any characters: guides/*.md.")
    offset: int = Field(0, ge=0, description="Number of pages to leave out: `next` of the answer before.")
    k: int = Field(50, ge=1, le=200, description="Most pages in the answer.")


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
    shown = [_shown(_found(hit), MAX_ANSWER // len(hits)) for hit in hits]
    # Of many hits even the least that is shown of each would be too much.
    ends = accumulate(_size(hit) + len(", ") for hit in shown)
    kept = max(1, sum(end <= MAX_ANSWER for end in ends))
    left_out = {"hits_left_out": len(shown) - kept} if kept < len(shown) else {}
    return values | {"hits": shown[:kept]} | left_out


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
    # The text above the first heading of a page has the name of the page as its id.
    begins_page = document is not None and page_of(document) == request.id and FOLLOWING in document.fields
    page = None
    if document is None or begins_page:
        try:
            page = await service.look(whole_page, request.id)
        except ArgumentError:  # too many documents to list pages
            if document is None:
                raise
    if page is not None:
        text = page.text
        values: dict[str, Any] = {"id": request.id, "title": page.title}
    elif document is not None:
        text, values = document.text, document._asdict() | {"fields": dict(document.fields)}
    else:
        raise NotFoundError(f"there is no document {request.id!r}")
    start, end = request.start, min(request.start + request.characters, len(text))
    if start > len(text):
        raise ArgumentError(f"start must be at most {len(text):,}, the characters of the document, not {start:,}")
    values |= {"start": start, "text": text[start:end], "characters": len(text)}
    if page is not None:
        values["sections"] = {name: place for name, place in page.starts.items() if start <= place < end}
    return _within(values | ({"next": end} if end < len(text) else {}), MAX_ANSWER)


async def _list(service: Service, request: ListRequest) -> dict[str, object]:
    listed = await service.look(pages)
    names = list(listed) if request.pattern == "*" else fnmatch.filter(listed, request.pattern)
    shown = names[request.offset : request.offset + request.k]
    firsts = await service.look(first_sections, [listed[name] for name in shown])
    rows = [
        {
            "id": page_of(first) or first.id,
            "title": beginning(first.title, MAX_FIELD_TEXT),
            "sections": len(listed[name]),
        }
        for name, first in zip(shown, firsts, strict=True)
        if first is not None
    ]
    while len(rows) > 1 and _size(rows) > MAX_ANSWER:
        rows = rows[: len(rows) // 2]
    end = request.offset + len(rows)
    return {"pages": rows, "total": len(names)} | ({"next": end} if end < len(names) else {})


TOOLS = {
    "search": ServiceTool(
        "Search {index}. Returns the best documents for a question or keywords, best first, with id, title, fields and "
        f"the beginning of the text, at most {MAX_HIT_TEXT:,} characters; … ends a longer text, or a field of over "
        f"{MAX_FIELD_TEXT}; `fields_left_out` counts further fields. `read` the rest, from the hit's `start`. A page "
        "is one hit, with further `sections`; `copies` are ids of hits with the same text. Matches by meaning as well "
        "as by words. Scores compare only within one search. `offset` gets further hits, also `hits_left_out` of many.",
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
        "Read a document of {index} by its id, or the whole page that it is a section of by the `group` of a hit; in "
        "parts if it is long: `next` is the `start` of the next part, `characters` the length of the whole text.",
        ReadRequest,
        _read,
    ),
    "list": ServiceTool(
        "List the pages of {index} by name, with title and number of sections: to see what there is, or to find a page "
        "whose name you know. For a question, `search`.",
        ListRequest,
        _list,
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
    count = await service.look(Collection.count)
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
    types, errors = require_extra("mcp_types", "mcp"), require_extra("mcp.shared.exceptions", "mcp")

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

    async def list_resources(context: object, page: Any) -> Any:
        cursor = page and page.cursor
        start = int(cursor) if cursor and cursor.isdecimal() else 0
        listed = await _asked("list", {"offset": start, "k": RESOURCES})
        resources = [
            types.Resource(uri=SCHEME + quote(row["id"]), name=row["id"], title=row["title"] or None, mime_type=TEXT)
            for row in listed["pages"]
        ]
        following = str(listed["next"]) if "next" in listed else None
        return types.ListResourcesResult(resources=resources, next_cursor=following)

    async def read_resource(context: object, asked: Any) -> Any:
        name = unquote(asked.uri.removeprefix(SCHEME))
        part = await _asked("read", {"id": name, "characters": MAX_READ})
        rest = f"\n\n[{part['next']:,} of {part['characters']:,} characters: `read` the rest]" if "next" in part else ""
        contents = [types.TextResourceContents(uri=asked.uri, mime_type=TEXT, text=part["text"] + rest)]
        return types.ReadResourceResult(contents=contents)

    async def _asked(name: str, arguments: dict[str, Any]) -> Any:
        value, failed = await call(current(), name, arguments)
        if failed:
            raise errors.MCPError(types.INVALID_PARAMS, value)
        return value

    return lowlevel.Server(
        "vocable",
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


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
