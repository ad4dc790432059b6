"""The verb `serve`: open an index, bind a port, and answer until told to stop."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, Signature, signature
from ipaddress import ip_address
from multiprocessing import parent_process
from multiprocessing.connection import wait
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Annotated, Any, NamedTuple

from annotated_types import Ge, Le

from vocable.errors import ArgumentError, require_extra
from vocable.options import Count, Share, checked
from vocable.progress import without_progress
from vocable.retrieval.collection import Collection
from vocable.retrieval.folder import FolderCollection
from vocable.retrieval.verbs import open_index
from vocable.service import TOKEN
from vocable.service.limits import Limits, checked_limits
from vocable.service.metrics import Metrics
from vocable.tables import counted, shortened
from vocable.wackiness.measure import WACKY_SHARE, read_wacky_terms

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # where it listens is for everybody

PATIENCE = 60  # seconds after which a worker that does not answer is replaced
LONGEST_HEAD = 2**18  # bytes of a request line and headers: 64 ids of 1,024 characters are less
LONGEST_TOKEN = 8192  # characters
LONGEST_NAME = 80  # characters of a host in a message


@dataclass(frozen=True)
class Settings:
    """What a worker process needs to know."""

    index: str
    model: str | None
    allow_changed_model: bool
    device: str | None
    limits: Limits
    token: str | None = field(repr=False)
    hosts: frozenset[str]  # names by which it is asked where it has no token
    log_queries: bool
    beside: str | None = None
    wacky: str | None = None
    wacky_share: float | None = None
    metrics: str | None = None  # the folder in which workers count


class Opened(NamedTuple):
    """What is served: a collection, the terms whose expansions are marked, and a collection beside it."""

    collection: Collection
    beside: Collection | None = None
    wacky: frozenset[str] | None = None

    @property
    def collections(self) -> list[Collection]:
        """One or two."""
        return [self.collection, *([] if self.beside is None else [self.beside])]

    def close(self) -> None:
        """Close the collections."""
        for one in self.collections:
            one.close()


@checked
def serve(
    index: str | os.PathLike[str],
    model: str | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, Ge(0), Le(65535)] = 8000,
    workers: Count = 1,
    token_file: str | os.PathLike[str] | None = None,
    *,
    allow_host: Sequence[str] = (),
    beside: str | os.PathLike[str] | None = None,
    wacky: str | os.PathLike[str] | None = None,
    wacky_share: Share | None = None,
    browser: bool = False,
    log_queries: bool = False,
    allow_changed_model: bool = False,
    device: str | None = None,
    **limits: Any,
) -> None:
    """Serve an index over HTTP until SIGTERM or Ctrl-C, which let it finish what it has taken on; `/` is a page.

    Args:
        index: its place.
        model: the model of the index, if it has moved: a folder or a Hub id.
        host: the address that is listened on; 0.0.0.0 is all of the machine's.
        port: 0 for one that is free.
        workers: processes that answer; more than one for an index that cannot change.
        token_file: a file with the bearer token that requests must have; or it stands in VOCABLE_TOKEN.
        allow_host: a name by which a service without a token may be asked. Addresses, localhost and `host` always may.
        beside: the place of a second index, whose hits the page can show beside those of the first.
        wacky: a file of scores that `vocable.measure_wackiness` wrote: terms whose expansions are marked.
        wacky_share: share of the scored terms that is wacky, 0.1 by default.
        browser: show the page in a browser.
        log_queries: write the text of queries into the log.
        allow_changed_model: serve even if the model's weights are not those that made the index.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        limits: as `vocable.service.limits.Limits` has them (docs/serve.md).

    Raises:
        ArgumentError: an argument out of its range, a port that is taken, or several workers for an index that changes.
        VectorsError: there is no index, it is damaged or in use, or its model has changed.
        ModelError: its model cannot be loaded.
        MissingExtraError: the extra `serve` is not installed.
    """
    for needed in ("fastapi", "uvicorn"):
        require_extra(needed, "serve")
    if wacky_share is not None and wacky is None:
        raise ArgumentError("wacky_share is of the scores in `wacky`: give both")
    how = os.fspath(index), model, allow_changed_model, device
    checked, token = checked_limits(limits), _token(token_file)
    second, scores = (None if one is None else os.fspath(one) for one in (beside, wacky))
    if wrong := next((name for name in allow_host if ":" in name or "/" in name), None):
        raise ArgumentError(f"allow_host is a name alone, without scheme and port, not {wrong}")
    hosts = frozenset(name.lower() for name in (host, *allow_host))
    settings = Settings(*how, checked, token, hosts, log_queries, second, scores, wacky_share)
    with without_progress(), TemporaryDirectory(prefix="vocable-") as folder, _listening(host, port) as listening:
        opened = _opened(settings)
        place = f"{opened.collection.place} ({counted(len(opened.collection), 'document')})"
        app: Any = partial(application, replace(settings, metrics=folder))
        if workers == 1:
            app = application(settings, opened)
        elif not all(isinstance(one, FolderCollection) for one in opened.collections):
            opened.close()
            one = "an index that changes is held by one process"
            raise ArgumentError(f"workers: {one}: leave `workers` at 1, or index to exact:FOLDER")
        else:
            _ = [one.loaded_model for one in opened.collections]  # what is wrong with it is said here, once
        del opened
        url = "http://{}:{}".format(f"[{host}]" if ":" in host else host, listening.getsockname()[1])
        if token is None and not _is_local(host):
            logger.warning("%s: whoever reaches it may read all of the index: set a token (--token-file)", url)
        logger.info("serving %s at %s", place, url)
        if browser and _has_screen():
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        _run(app, listening, workers, checked.timeout)


def application(settings: Settings, opened: Opened | None = None) -> Any:
    """The ASGI application of one process."""
    from vocable.service.app import endpoints
    from vocable.service.middleware import Guard, JSONLines
    from vocable.service.service import Service

    if (parent := parent_process()) is not None:  # of a worker, which would outlive it
        Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    for name, level in (("vocable.service.log", logging.INFO), ("uvicorn.error", logging.WARNING)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)
    metrics, opened = Metrics(settings.metrics), opened or _opened(settings)
    service = Service(opened.collection, settings.limits, metrics, opened.wacky)
    beside = None if opened.beside is None else Service(opened.beside, settings.limits, metrics)
    return Guard(
        endpoints(service, metrics, beside),
        settings.limits,
        metrics,
        token=settings.token,
        hosts=settings.hosts,
        log_queries=settings.log_queries,
    )


def _end_after(process: int) -> None:
    """Stop when another process has ended."""
    wait([process])
    os.kill(os.getpid(), signal.SIGTERM)


def _run(app: Any, listening: socket.socket, workers: int, patience: int) -> None:
    """Answer until told to stop; with several workers `app` makes the application of each."""
    uvicorn = require_extra("uvicorn", "serve")
    config = uvicorn.Config(
        app,
        factory=workers > 1,
        workers=workers,
        log_config=None,
        access_log=False,
        server_header=False,
        http="h11",  # httptools takes headers without end
        h11_max_incomplete_event_size=LONGEST_HEAD,
        timeout_graceful_shutdown=patience,
        timeout_worker_healthcheck=PATIENCE,
    )
    with suppress(KeyboardInterrupt):  # which uvicorn raises after it has finished
        if workers == 1:
            uvicorn.Server(config).run(sockets=[listening])
        else:
            require_extra("uvicorn.supervisors", "serve").Multiprocess(config, sockets=[listening]).run()


def _opened(settings: Settings) -> Opened:
    how: dict[str, Any] = {"allow_changed_model": settings.allow_changed_model, "device": settings.device}
    collection = open_index(settings.index, **how)
    opened = Opened(collection if settings.model is None else collection.with_model(model=settings.model))
    try:
        if settings.beside is not None:
            opened = opened._replace(beside=open_index(settings.beside, **how))
        if settings.wacky is not None:
            found = read_wacky_terms(settings.wacky, opened.collection.terms, settings.wacky_share or WACKY_SHARE)
            opened = opened._replace(wacky=found)
    except BaseException:
        opened.close()
        raise
    return opened


def _token(file: str | os.PathLike[str] | None) -> str | None:
    """Return the token of a file or of the environment; it is never part of a message."""
    if file is None:
        token = os.environ.get(TOKEN)
    else:
        with open(file, encoding="latin-1") as opened:  # in which everything can be read, and ASCII is the same
            token = opened.read(LONGEST_TOKEN).strip()
    if token is None:
        return None
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        where = TOKEN if file is None else f"token_file {file}"
        raise ArgumentError(f"{where}: a token is one word of printable ASCII")
    return token


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ArgumentError(f"host {host}, port {port}: {error.strerror or error}") from error
    except UnicodeError as error:  # of a label that DNS cannot have
        raise ArgumentError(f"host {shortened(host, LONGEST_NAME)} is no name of a host: {error}") from error


def _has_screen() -> bool:
    """Whether a browser would have a window; one within the terminal would take it over."""
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _signature() -> Signature:
    """The signature of `serve` with the limits by name, for help and for whoever reads it."""
    own = [parameter for parameter in signature(serve).parameters.values() if parameter.name != "limits"]
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
        for name, field in Limits.model_fields.items()
    ]
    return Signature([*own[:6], *named, *own[6:]], return_annotation=None)


setattr(serve, "__signature__", _signature())  # noqa: B010  (a function's type has no such attribute)
