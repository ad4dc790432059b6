"""Read answers of Elasticsearch and OpenSearch: missing shards, and errors in our own words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vocable.engines.server import BUSY_STATUSES
from vocable.errors import GoneError, NoSpaceError, VectorsError

FOREIGN = "this is not the server's answer, but a proxy's or a login page's: name the address of the server itself"
FOREIGN_ERRORS = ("SerializationError", "UnsupportedProductError", "JSONDecodeError")  # of the drivers
KEYS = {"_bulk": "items", "_count": "count", "_mget": "docs", "_msearch": "responses", "_search": "hits"}
LOGINS = {401: "user or password is wrong or missing", 403: "the user may not do this"}


def left_out(answer: Mapping[str, Any], name: str) -> str | None:
    """Return what an answer of the index `name` leaves out; None if it covers all shards completely."""
    shards = answer["_shards"]
    if lacking := shards["total"] - shards["successful"]:  # a shard without a node is not among the failed ones
        verb = "is" if lacking == 1 else "are"
        failures = [failure["reason"] for failure in shards.get("failures", ())]
        why = f" ({reason_of(failures[0])})" if failures else ""
        return f"{lacking} of {shards['total']} shards of {name} {verb} not available{why}"
    return f"the search of {name} was cut short" if answer.get("timed_out") else None


def complete(answer: Any, path: str, where: str) -> Any:
    """Return an answer; without the part that each answer of its kind has, raise `VectorsError`, led by `where`."""
    key = KEYS.get(path.partition("?")[0].rpartition("/")[2])
    if key is not None and (not isinstance(answer, dict) or key not in answer):
        raise VectorsError(f"{where}{FOREIGN}")
    return answer


def changed_mapping(sent: Mapping[str, Any], stored: Mapping[str, Any], path: str = "") -> list[str]:
    """Return the parts of a mapping that differ from the sent mapping; a field may have more than was sent.

    >>> changed_mapping({"dynamic": False, "a": {"type": "text"}}, {"dynamic": "false", "a": {"type": "long"}, "b": 1})
    ['a.type', 'b']
    """
    names = [f"{path}{name}" for name in stored if name not in sent and not path]
    for name, value in sent.items():
        if name == "_meta":
            continue
        other = stored.get(name, False if value is False else None)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            names += changed_mapping(value, other, f"{path}{name}.")
        elif str(value).lower() != str(other).lower() and not (name == "type" and value == "object" and other is None):
            names.append(f"{path}{name}")
    return sorted(names)


def reason_of(error: Mapping[str, Any]) -> str:
    """Return the type and the reason of an error, in the words of the server.

    >>> reason_of({"type": "x", "reason": "all failed", "root_cause": [{"type": "y", "reason": "no such field"}]})
    'y: no such field'
    """
    cause = (error.get("root_cause") or [error])[0]
    kind, reason = cause.get("type", error.get("type")), cause.get("reason")
    return str(kind) if reason is None else f"{kind}: {reason}"


def unreached(message: str) -> str:
    """Return a driver's message about a missing answer, without the names of the driver's classes.

    >>> unreached("ConnectionError(<...>: [Errno 111] Connection refused) caused by: NewConnectionError(<...>)")
    'no connection: Connection refused'
    """
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return f"its certificate is not trusted: {certificate_fault(message)}"
    if "timed out" in message.lower():
        return "the server does not answer in time"
    system_error = re.search(r"\[Errno -?\d+\] ([^)']+)", message)
    return f"no connection: {system_error[1]}" if system_error else message


def certificate_fault(message: str) -> str:
    """Return why a certificate is not trusted, and what to do.

    >>> certificate_fault("CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1)")
    'certificate has expired'
    """
    match = re.search(r"certificate verify failed: ([^(]+?) *\(", message)
    why = match[1] if match else "verification failed"
    return (
        f"{why}: name the file of its CA in the environment (docs/engines.md)"
        if "issuer" in why or "self" in why
        else why
    )


def error_in(content: str) -> Mapping[str, Any]:
    """Return the error in the content of an answer."""
    try:
        error = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        error = content
    return error if isinstance(error, dict) else {"type": error}


def passes(status: int) -> bool:
    """Return whether a document's error may pass; a node that has just left causes the status 500."""
    return status in BUSY_STATUSES or status == 500


def refusal_of(status: int | None, error: Mapping[str, Any], where: str, name: str) -> VectorsError | None:
    """Return the error to raise if repeating a request is no use, in our own words; None for any other error.

    The message begins with `where`; `name` is the index.
    """
    kind, reason = str(error.get("type")), str(error.get("reason"))
    # The index cannot be written, or is gone.
    if kind == "cluster_block_exception" and "SERVICE_UNAVAILABLE" not in reason:
        if "flood-stage" in reason:
            return NoSpaceError(f"{where}the index {name} is read-only, the disk of a node is full: free space there")
        return VectorsError(f"{where}the index {name} is blocked: {reason}")
    if kind == "index_not_found_exception":
        return GoneError(f"{where}there is no index {name!r} here: it was deleted")
    # The server lacks a module.
    if lacking := re.search(r"No handler for type \[(\w+)\]|unknown setting \[index\.knn\]", reason):
        type_ = lacking[1] or "knn_vector"
        less = ", or index without dense vectors (--no-dense)" if "field [dense]" in reason or not lacking[1] else ""
        return VectorsError(
            f"{where}the server has no fields of the type {type_}: install the module that has them{less}"
        )
    # A proxy, or a server that refuses the request.
    if status is not None and 300 <= status < 400:
        return VectorsError(f"{where}{FOREIGN} (it redirects, {status})")
    if status == 413:
        return VectorsError(
            f"{where}a request is too large for the server or a proxy (413): a lower bulk makes it smaller"
        )
    if status in LOGINS:
        return VectorsError(f"{where}{LOGINS[status]} (the server answers {status})")
    return None
