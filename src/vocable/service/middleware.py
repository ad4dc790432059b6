"""ASGI middleware: host, origin, token, method, type and size of the body are checked; time limit, metrics and log.

Starlette's `TrustedHostMiddleware` allows names alone, not any IP address, and reads no IPv6 address; uvicorn's
`limit_concurrency` also refuses /health, and in no form that clients know. So both checks stand here.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from fastapi.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Mount, Route

from vocable.core.json_objects import parse_json
from vocable.engines.health import request_id
from vocable.service import ServiceLimits
from vocable.service.batching import ARRIVED
from vocable.service.metrics import Metrics
from vocable.service.pages import FILES

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

logger = logging.getLogger("vocable.service.log")

OPEN = ("/health", "/ready")  # answered without a token, and when the service is busy
CHANGING = ("/documents", "/mcp")  # paths of requests that may change documents
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
PORT = re.compile(r":[0-9]*$")
NOSNIFF = (b"x-content-type-options", b"nosniff")  # sent with every answer: no browser takes JSON for a page
RETRY_AFTER = {"Retry-After": "1"}  # seconds
CLIENT_GONE = 499  # nginx's status of a request that nobody waits for
KINDS = {  # names of errors in text-embeddings-inference
    **dict.fromkeys((424, 500, 507), "Backend"),
    **dict.fromkeys((429, 504), "Overloaded"),
    503: "Unhealthy",
}


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error in one line, in the form of text-embeddings-inference."""
    kind = KINDS.get(status, "Validation")
    if status in (429, 503):
        headers = RETRY_AFTER | (headers or {})
    return JSONResponse({"error": message, "error_type": kind}, status, headers)


class ServiceMiddleware:
    """An ASGI application in front of `app`; it answers HEAD with the headers of GET."""

    def __init__(
        self,
        app: App,
        limits: ServiceLimits,
        metrics: Metrics,
        *,
        token: str | None = None,
        hosts: frozenset[str] = frozenset(),
        log_queries: bool = False,
    ) -> None:
        """Without a token, requests must name an IP address, localhost or one of `hosts`.

        Otherwise a page of another site, whose name is made to lead here (DNS rebinding), could send requests.
        """
        self.app, self._limits, self._metrics, self._log_queries = app, limits, metrics, log_queries
        self._token = None if token is None else token.encode()
        self._hosts, self._in_progress = hosts, 0
        self._arriving: dict[asyncio.Timeout, None] = {}  # requests whose bodies have not arrived, the oldest first

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; other messages are passed on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # HEAD is answered as GET without the body, and a valid request id comes back in the answer.
        without_body = scope["method"] == "HEAD"
        asked = {**scope, "method": "GET"} if without_body else scope
        status, sent, started = 500, 0, time.perf_counter()
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        told = [(b"x-request-id", given.encode())] if REQUEST_ID.fullmatch(given) else []
        request_id.set(given if told else secrets.token_hex(8))

        async def sending(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], NOSNIFF, *told]}
            elif without_body and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            sent += len(message.get("body", b""))
            await send(message)

        # The body is read before the application answers; a refused request never reaches it.
        error: Exception | None = None
        self._in_progress += 1
        self._metrics.in_progress.inc()
        try:
            body = self._refused(asked) or await self._body(receive)
            started = time.perf_counter()
            ARRIVED.set(time.monotonic())
            if isinstance(body, bytes) and asked["method"] in ("POST", "PUT"):
                body = _unreadable(body) or body
            if isinstance(body, JSONResponse):
                await body(asked, receive, sending)
            else:
                await self._answer(asked, body, receive, sending, lambda: sent > 0)
        except Exception as failure:  # the application has answered it
            error = failure
        finally:
            self._in_progress -= 1
            self._metrics.in_progress.dec()
            self._record(scope, status, sent, time.perf_counter() - started, error)

    def _refused(self, scope: Message) -> JSONResponse | None:
        """Return the refusal of a request by its headers, None if it is to be answered."""
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers and (b"content-length" in headers or scope["http_version"] == "1.0"):
            # A proxy that believes the other length would take the rest of the body for a request (RFC 9112, 6.1).
            lengths = "Content-Length and Transfer-Encoding do not go together, nor the latter with HTTP/1.0"
            return refusal(400, lengths, {"Connection": "close"})
        if scope["path"] in OPEN:
            return self._wrong_method(scope)
        if self._token is None and not self._is_known(headers.get(b"host", b"").decode("latin-1")):
            names = "an IP address or localhost as its host; --allow-host NAME adds a name"
            return refusal(403, f"without a token, a request must have {names}")
        if scope["method"] not in SAFE and _is_of_another_site(headers):
            return refusal(403, "a page of another site sent this: only programs and the service's own page may")
        if self._token is not None and scope["path"] not in FILES:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
                return refusal(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        if self._in_progress > self._limits["max_requests"] and not self._give_way():
            return refusal(429, f"more than {self._limits['max_requests']:,} requests at a time")
        if (wrong := self._wrong_method(scope)) is not None:
            return wrong
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if scope["method"] in ("POST", "PUT") and kind != b"application/json":
            return refusal(415, "the body must be JSON: send the header Content-Type: application/json")
        if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
            return refusal(
                415, "the body must be plain JSON: send it without Content-Encoding", {"Accept-Encoding": "identity"}
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._limits["max_body"]:
            return self._too_large()
        return None

    def _give_way(self) -> bool:
        """End the oldest request whose body has not arrived, so that slow clients keep out no other; say if one is."""
        oldest = next(iter(self._arriving), None)
        if oldest is not None:
            del self._arriving[oldest]
            oldest.reschedule(0)
        return oldest is not None

    def _wrong_method(self, scope: Message) -> JSONResponse | None:
        """Return the refusal of a method that the path does not have; None also for an unknown path."""
        methods = set(_methods(getattr(self.app, "routes", ()), scope))
        if not methods or scope["method"] in methods:
            return None
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return refusal(405, f"{scope['path']} is for {allowed}", {"Allow": allowed})

    def _is_known(self, host: str) -> bool:
        """Return whether a Host header has an allowed name or an IP address, which no other site has as its name."""
        name = PORT.sub("", host).lower().removesuffix(".")
        try:
            return name == "localhost" or name in self._hosts or bool(ip_address(name.strip("[]")))
        except ValueError:
            return False

    async def _body(self, receive: Receive) -> bytes | JSONResponse:
        """Read the body of a request before anything is done for it."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits["timeout"]) as limit:
                self._arriving[limit] = None
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._limits["max_body"]:
                        return self._too_large()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            reason = f"the body did not arrive within {self._limits['timeout']} s, or others waited for its place"
            return refusal(408, reason, {"Connection": "close"})
        finally:
            self._arriving.pop(limit, None)

    def _too_large(self) -> JSONResponse:
        return refusal(413, f"a request has at most {self._limits['max_body']:,} bytes", {"Connection": "close"})

    async def _answer(
        self, scope: Message, body: bytes, receive: Receive, send: Send, begun: Callable[[], bool]
    ) -> None:
        """Call the application within the time limit, and as long as the client is there."""
        try:
            async with asyncio.timeout(self._limits["timeout"]):
                gone = await _gone_before(self.app(scope, _replayed(body, receive), send), receive, begun)
        except TimeoutError:
            if not begun():
                message = f"not done within {self._limits['timeout']} s"
                if scope["path"] in CHANGING and scope["method"] != "GET":
                    message += "; a change may still come into effect"
                await refusal(504, message)(scope, receive, send)
        else:
            if gone:
                await refusal(CLIENT_GONE, "the client is gone")(scope, receive, send)  # for metrics and log alone

    def _record(self, scope: Message, status: int, sent: int, seconds: float, error: Exception | None) -> None:
        endpoint = self._metrics.request(scope["path"], status, seconds)
        line: dict[str, object] = {
            "event": "request",
            "id": request_id.get(),
            "method": scope["method"],
            "endpoint": endpoint,
            "status": status,
        }
        line |= {"ms": round(1000 * seconds, 3), "bytes": sent}
        if self._log_queries and (query := scope.get("state", {}).get("query")) is not None:
            line["query"] = query
        if error is not None:
            line["error"] = f"{type(error).__name__}: {error}"
        logger.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra={"line": line}, exc_info=error)


def _unreadable(body: bytes) -> JSONResponse | None:
    """Return the refusal of JSON that Python does not read, or that has a key twice; None for others.

    Whoever reads the body says where it is no JSON at all.
    """
    try:
        parse_json(body)
    except json.JSONDecodeError:
        return None
    except (ValueError, RecursionError) as error:
        return refusal(422, f"not readable JSON: {error}")
    return None


def _is_of_another_site(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser sent the request from a page of another site or port."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:  # browsers send it over HTTPS and to this machine; else the origin alone
        return site not in (b"same-origin", b"none")
    return origin is not None and origin.partition(b"//")[2] != headers.get(b"host")


def _methods(routes: Sequence[BaseRoute], scope: Message) -> Iterator[str]:
    """Yield the methods of the routes, mounted routes included, that match the path of a request."""
    for route in routes:
        match, inner = route.matches(scope)
        if match is not Match.NONE and isinstance(route, Mount):
            yield from _methods(route.routes, {**scope, **inner})
        elif match is not Match.NONE and isinstance(route, Route):
            yield from route.methods or ()


async def _gone_before(answer: Awaitable[None], receive: Receive, begun: Callable[[], bool]) -> bool:
    """Await an answer, or cancel it if the client goes before it has begun; return whether it was cancelled."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() and not begun():
            answering.cancel()
            await asyncio.wait((answering,))
            return True
        await answering  # the end of an answer closes its files
        return False
    finally:
        leaving.cancel()
        answering.cancel()


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns the body, which has been read, and then further messages."""
    done = False

    async def replay() -> Message:
        nonlocal done
        if done:
            return await receive()
        done = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class JSONLines(logging.Formatter):
    """A formatter that writes a line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {"time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")}
        line |= {"level": record.levelname.lower()}
        line |= getattr(record, "line", None) or {"event": "log", "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
