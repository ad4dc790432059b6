"""Searches by other programs: a TREC run, a JSON file of results, or an address that answers in JSON.

A hit is a tuple of addresses, the best first, such as its link and its id.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx

from vocable.core.json_objects import parse_json
from vocable.core.storage import regular
from vocable.core.tables import masked
from vocable.data import Query
from vocable.errors import ArgumentError, DataError, ServiceError
from vocable.indexes.ranking import in_order, read_trec

QUERY_MARK = "{query}"
ANSWER_SECONDS = 10.0  # longest wait for an answer
ANSWER_BYTES = 10 << 20  # of the largest answer
FILE_BYTES = 1 << 30  # of the largest file of results
ADDRESS_FIELDS = ("url", "id")  # fields of a hit that name its page
HIT_LISTS = ("pages", "hits", "results")  # fields of an answer that hold its hits

Addresses: TypeAlias = tuple[str, ...]  # of one hit


@dataclass(frozen=True)
class OtherSearch:
    """A search by another program: its name, the hits of a query, and the bytes of its file.

    `hits` also returns the bytes of an answer, and None if the answers lie in a file. `close` ends its connection.
    """

    name: str
    hits: Callable[[Query], tuple[list[Addresses], int | None]]
    file_bytes: int | None = None
    close: Callable[[], None] = lambda: None


def other_search(source: str, queries: list[Query]) -> OtherSearch:
    """Return the search that a source names.

    A source is an address with {query}, the address of a vocable service, a .json file, or a TREC run.

    Raises:
        ArgumentError: an address is not one of http or https.
        DataError: a file cannot be read, or has none of the queries.
    """
    if re.match(r"https?://", source):
        return _http_search(source)
    if "://" in source:
        raise ArgumentError(f"{masked(source)}: the address of a search must begin with http:// or https://")
    path = Path(source)
    if not path.is_file():
        raise DataError("no such file (a search is a TREC run, a .json file or an address with {query})", source=source)
    by_query = _json_results(path) if path.suffix.lower() == ".json" else _run_results(path, queries)
    if not any(query.text in by_query for query in queries):
        raise DataError(f"no result for any of {len(queries):,} queries, such as {queries[0].text!r}", source=source)
    return OtherSearch(path.stem, lambda query: (by_query.get(query.text, []), None), path.stat().st_size)


def _run_results(path: Path, queries: list[Query]) -> dict[str, list[Addresses]]:
    scores: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for hit in read_trec(path):
        scores[hit.query_id][hit.doc_id] = hit.score
    return {query.text: [(name,) for name in in_order(scores[query.id])] for query in queries if query.id in scores}


def _json_results(path: Path) -> dict[str, list[Addresses]]:
    """Return the hits of a file {query: [address, ...]}, by query."""
    source = os.fspath(path)
    if path.stat().st_size > FILE_BYTES:
        raise DataError(f"results must have at most {FILE_BYTES >> 30} GB", source=source)
    try:
        values = parse_json(regular(path).read_bytes())
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON ({error.msg})", source=source, line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"not readable JSON ({error})", source=source) from error
    if not isinstance(values, Mapping):
        raise DataError('results must be an object {"query": ["address", ...]}', source=source)
    try:
        return {" ".join(query.split()): list(_addresses(hits)) for query, hits in values.items()}
    except ValueError as error:
        raise DataError(str(error), source=source) from error


def _http_search(address: str) -> OtherSearch:
    """Return a search by an address with {query}, or without it by the address of a vocable service."""
    shown = masked(address)
    try:
        url = httpx.URL(address.replace(QUERY_MARK, "query"))
    except httpx.InvalidURL as error:
        raise ArgumentError(f"{shown} is not an address: {error}") from None
    if not url.host:
        raise ArgumentError(f"{shown} is not an address: it has no host")
    client = httpx.Client(timeout=ANSWER_SECONDS, follow_redirects=True)

    def hits(query: Query) -> tuple[list[Addresses], int | None]:
        if QUERY_MARK in address:
            request = client.build_request("GET", address.replace(QUERY_MARK, quote(query.text, safe="")))
        else:
            request = client.build_request("POST", f"{address.rstrip('/')}/search", json={"query": query.text})
        where = f"{shown}, query {query.text!r}"
        content = _content(client, request, where)
        try:
            return list(_addresses(parse_json(content))), len(content)
        except (ValueError, RecursionError) as error:
            reason = "not JSON" if isinstance(error, json.JSONDecodeError) else error
            raise ServiceError(f"{where}: {reason}") from error

    return OtherSearch(f"{url.host}:{url.port}" if url.port else url.host, hits, close=client.close)


def _content(client: httpx.Client, request: httpx.Request, where: str) -> bytes:
    """Return the body of an answer; raise `ServiceError` for an answer that fails, or is too late or too large."""
    start, parts, size = perf_counter(), list[bytes](), 0
    try:
        answer = client.send(request, stream=True)
        try:
            if answer.is_error:
                raise ServiceError(f"{where}: {answer.status_code} {answer.reason_phrase}")
            for part in answer.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > ANSWER_BYTES:
                    raise ServiceError(f"{where}: an answer must have at most {ANSWER_BYTES >> 20} MB")
                if perf_counter() - start > ANSWER_SECONDS:
                    raise ServiceError(f"{where}: an answer must come within {ANSWER_SECONDS:g} seconds")
        finally:
            answer.close()
    except httpx.TimeoutException as error:
        raise ServiceError(f"{where}: an answer must come within {ANSWER_SECONDS:g} seconds") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServiceError(f"{where}: {error or type(error).__name__}") from error
    return b"".join(parts)


def _addresses(answer: object) -> Iterator[Addresses]:
    """Yield the addresses of the hits of an answer.

    >>> list(_addresses(["/a/", {"url": "/b/", "id": 7}])), list(_addresses({"hits": [{"id": "c.md"}]}))
    ([('/a/',), ('/b/', '7')], [('c.md',)])
    """
    if isinstance(answer, Mapping):
        lists = [answer[name] for name in HIT_LISTS if isinstance(answer.get(name), list)]
        answer = next(filter(None, lists), [] if lists else None)
    if not isinstance(answer, list):
        raise ValueError('an answer must be a list of addresses, or an object with such a list as "hits" or "results"')
    for hit in answer:
        addresses = (hit,) if isinstance(hit, str) else _names(hit) if isinstance(hit, Mapping) else ()
        if not any(addresses):
            raise ValueError(f'a hit must be an address or an object with "url" or "id", not {json.dumps(hit)[:80]}')
        yield addresses


def _names(hit: Mapping[str, Any]) -> Addresses:
    """Return the addresses of a hit with fields; the hits of vocable have further fields in `fields`."""
    inner = hit.get("fields")
    values = [of.get(name) for of in (hit, inner if isinstance(inner, Mapping) else {}) for name in ADDRESS_FIELDS]
    return tuple(str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool))
