"""The verb `serve`: open an index, bind a port, and answer requests until a signal ends it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Annotated, Any, NamedTuple, Unpack, cast

from annotated_types import Ge, Le

from vocable.collection.collection import Collection, open_index
from vocable.collection.records import Changed
from vocable.collection.rerank import load_reranker
from vocable.collection.watching import follow
from vocable.core.progress import without_progress
from vocable.core.tables import counted, shortened
from vocable.encoding.term_scores import read_wacky_terms
from vocable.errors import ArgumentError, VocableError, require_extra
from vocable.options import Count, RerankOptions, checked, select
from vocable.service import TOKEN_VARIABLE, ServiceLimits, ServiceOptions

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # the address is logged for everybody

HEALTH_TIMEOUT = 60  # seconds after which a worker that does not answer is replaced
MAX_HEADERS = 2**18  # bytes of a request line and headers: 64 ids of 1,024 characters need less
MAX_TOKEN = 8192  # characters
MAX_HOST = 80  # characters of a host in a message


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker process; workers count metrics in the folder `metrics`."""

    index: str | list[str]
    model: str | None
    host: str
    token: str | None = field(repr=False)
    options: ServiceOptions
    metrics: str | None = None

    @property
    def limits(self) -> ServiceLimits:
        """The limits."""
        return select(ServiceLimits, self.options)


class ServedIndex(NamedTuple):
    """An opened collection, the terms whose expansions are marked, and perhaps a second collection."""

    collection: Collection
    second: Collection | None = None
    wacky: frozenset[str] | None = None

    @property
    def collections(self) -> list[Collection]:
        """One or two collections."""
        return [self.collection, *([] if self.second is None else [self.second])]

    def close(self) -> None:
        """Close the collections."""
        for collection in self.collections:
            collection.close()


@checked
def serve(
    index: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, Ge(0), Le(65535)] = 8000,
    workers: Count = 1,
    token_file: str | os.PathLike[str] | None = None,
    **options: Unpack[ServiceOptions],
) -> None:
    """Serve an index over HTTP.

    At / is a search page. There are searches, explanations, sparse embeddings in the format of
    text-embeddings-inference, changes, and tools for agents (MCP, at /mcp, or on stdin and stdout with `mcp`). The log
    is JSON on stderr. It ends by SIGTERM or Ctrl-C, after accepted requests are finished.

    Args:
        index: place of the index; several are searched as one, and cannot change.
        model: the model of the index, if it has moved: a folder or a Hub id.
        host: address to listen on; 0.0.0.0 is all addresses of the machine.
        port: port to listen on; 0 for a free one.
        workers: processes that answer; each follows the changes of the index.
        token_file: file with the bearer token that requests must have; by default the token in VOCABLE_TOKEN.
        options: limits and settings (`vocable.service.ServiceOptions`).

    Raises:
        ArgumentError: an argument is out of range, or the port is taken.
        VectorsError: there is no index, it is damaged or in use, or its model has changed.
        ModelError: the model cannot be loaded.
    """
    # Options that exclude each other.
    if wrong := next((name for name in options["allow_host"] or () if ":" in name or "/" in name), None):
        raise ArgumentError(f"allow_host is a name alone, without scheme and port, not {wrong}")
    if options["mcp"] and (host, port, workers, token_file) != ("127.0.0.1", 8000, 1, None):
        raise ArgumentError(
            "`host`, `port`, `workers` and `token_file` are for HTTP, not for `mcp` on stdin and stdout"
        )
    token = _token(token_file)
    places = [os.fspath(place) for place in ([index] if isinstance(index, str | os.PathLike) else index)]
    settings = WorkerSettings(places[0] if len(places) == 1 else places, model, host, token, options)
    if (watched := options["watch"]) is not None:
        follower = follow(open_index(settings.index, device=options["device"]), os.fspath(watched))
        Thread(target=_follow, args=(follower,), daemon=True).start()
    if options["mcp"]:
        _serve_stdio(settings)
        return
    with without_progress(), TemporaryDirectory(prefix="vocable-") as folder, _listening(host, port) as listening:
        # Open the index in this process, so that a fault is told once, before any worker starts.
        opened = _opened(settings)
        size = "not all documents" if (count := opened.collection.count()) is None else counted(count, "document")
        place = f"{opened.collection.place} ({size})"
        app: Any = partial(application, replace(settings, metrics=folder))
        if workers == 1:
            app = application(settings, opened)
        else:
            _ = [collection.models.loaded for collection in opened.collections]  # reports an unloadable model once
        del opened
        # Log the address, then serve.
        url = "http://{}:{}".format(f"[{host}]" if ":" in host else host, listening.getsockname()[1])
        if token is None and not _is_local(host):
            logger.warning("%s: anybody who reaches it can read the whole index: set a token (token_file)", url)
        logger.info("serving %s at %s", place, url)
        if options["browser"] and _has_screen():
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        _run(app, listening, workers, settings.limits["timeout"])


def _follow(changes: Iterator[Changed]) -> None:
    """Bring the index up to date with its folder until the process ends; log each change."""
    try:
        for changed in changes:  # the first is the comparison of all files
            logger.info("watch: %s", changed)
    except VocableError as error:
        logger.error("watch: %s: changes of files are no longer followed", error)


def application(settings: WorkerSettings, opened: ServedIndex | None = None) -> Any:
    """Return the ASGI application of one process."""
    from vocable.service.metrics import Metrics

    metrics = Metrics(settings.metrics)  # before anything else imports prometheus_client
    from vocable.service.app import endpoints
    from vocable.service.middleware import JSONLines, ServiceMiddleware
    from vocable.service.served import Served
    from vocable.service.service import Service

    if (parent := parent_process()) is not None:  # a worker would outlive it
        Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    _log_to_stderr(JSONLines())
    opened, limits, options = opened or _opened(settings), settings.limits, settings.options
    service_of = partial(_service, settings, metrics)
    second = None if opened.second is None else Service(opened.second, limits, metrics)
    return ServiceMiddleware(
        endpoints(Served(service_of(opened), lambda: service_of(_opened(settings))), metrics, second),
        limits,
        metrics,
        token=settings.token,
        hosts=frozenset(name.lower() for name in (settings.host, *(options["allow_host"] or ()))),
        log_queries=options["log_queries"],
    )


def _serve_stdio(settings: WorkerSettings) -> None:
    """Answer an agent on stdin and stdout."""
    require_extra("mcp", "mcp")  # before the index is opened
    from vocable.service.mcp import serve_stdio
    from vocable.service.metrics import Metrics
    from vocable.service.middleware import JSONLines

    _log_to_stderr(JSONLines())
    with without_progress():
        opened = _opened(settings)
        logger.info("serving %s on stdin and stdout", opened.collection.place)
        serve_stdio(_service(settings, Metrics(), opened))


def _service(settings: WorkerSettings, metrics: Any, opened: ServedIndex) -> Any:
    """Return the service of an opened index."""
    from vocable.service.service import Service

    options = settings.options
    reranking = select(RerankOptions, options)
    return Service(opened.collection, settings.limits, metrics, opened.wacky, reranking, options["title"])


def _log_to_stderr(form: logging.Formatter) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(form)
    for name, level in (
        ("vocable.service.log", logging.INFO),
        ("uvicorn.error", logging.WARNING),
        ("mcp", logging.ERROR),
    ):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)


def _end_after(process: int) -> None:
    """Stop this process when another process has ended."""
    wait([process])
    os.kill(os.getpid(), signal.SIGTERM)


def _run(app: Any, listening: socket.socket, workers: int, timeout: int) -> None:
    """Answer until a signal; with several workers, `app` makes the application of each worker."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from vocable.service.headers import BoundedHeaders

    config = uvicorn.Config(
        app,
        factory=workers > 1,
        workers=workers,
        log_config=None,
        access_log=False,
        server_header=False,
        http=cast(Any, partial(BoundedHeaders, seconds=timeout)),
        h11_max_incomplete_event_size=MAX_HEADERS,
        timeout_graceful_shutdown=timeout,
        timeout_worker_healthcheck=HEALTH_TIMEOUT,
    )
    with suppress(KeyboardInterrupt):  # uvicorn raises it after it has finished
        if workers == 1:
            uvicorn.Server(config).run(sockets=[listening])
        else:
            Multiprocess(config, sockets=[listening]).run()


def _opened(settings: WorkerSettings) -> ServedIndex:
    options = settings.options
    model: dict[str, Any] = {
        "allow_changed_model": options["allow_changed_model"],
        "device": options["device"],
    }
    collection = open_index(settings.index, engine_options=options["engine_options"], **model)
    opened = ServedIndex(collection if settings.model is None else collection.with_model(settings.model))
    try:
        if (second := options["compare_with"]) is not None:
            opened = opened._replace(second=open_index(second, **model))
        if (reranker := options["rerank"]) is not None:
            load_reranker(reranker, options["device"])  # now, so that no request waits for it
        if (scores := options["wacky"]) is not None:
            share = options["wacky_share"]
            opened = opened._replace(wacky=read_wacky_terms(scores, opened.collection.models.terms, share))
    except BaseException:
        opened.close()
        raise
    return opened


def _token(file: str | os.PathLike[str] | None) -> str | None:
    """Return the token of a file or of the environment; messages never contain it."""
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE)
    else:
        if Path(file).exists() and not Path(file).is_file():  # a pipe would be waited for
            raise ArgumentError(f"token_file {file}: not a regular file")
        with open(file, encoding="latin-1") as opened:  # decodes any bytes, and ASCII as ASCII
            token = opened.read(MAX_TOKEN).strip()
    if token is None:
        return None
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        where = TOKEN_VARIABLE if file is None else f"token_file {file}"
        raise ArgumentError(f"{where}: a token is one word of printable ASCII")
    return token


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ArgumentError(f"host {host}, port {port}: {error.strerror or error}") from error
    except UnicodeError as error:  # the name has a label that DNS cannot have
        raise ArgumentError(f"host {shortened(host, MAX_HOST)} is no name of a host: {error}") from error


def _has_screen() -> bool:
    """Return whether a browser has a window: a browser within the terminal would take it over."""
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
