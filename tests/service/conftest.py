"""Collections to serve, and a client of the application in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import copy_store
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.options import check
from vocable.service import ServiceOptions
from vocable.service.server import WorkerSettings, application


class Client:
    """Requests to an ASGI application, each in an event loop of its own unless several are sent together."""

    def __init__(self, app: Any) -> None:
        self.app, self.service = app, app.app.state.service

    def __call__(self, method: str, path: str, **what: Any) -> httpx.Response:
        """Send one request."""
        return self.together([(method, path, what)])[0]

    def together(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        """Send several at once."""

        async def send() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                return await asyncio.gather(*(client.request(method, path, **what) for method, path, what in requests))

        return asyncio.run(send())


@pytest.fixture(scope="session")
def exact(backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with BM25, whose documents stay as they are."""
    folder = tmp_path_factory.mktemp("exact") / "index"
    index(str(backbones["bert"]), corpus, folder, bm25=True, dtype="float32", device="cpu")
    return folder


@pytest.fixture(scope="session")
def closed_store(backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("closed") / "store"
    index(str(backbones["bert"]), corpus, folder, bm25=True, dtype="float32", device="cpu").close()
    return folder


@pytest.fixture(scope="session")
def built_in(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed index with BM25 by the built-in model: a Python of its own serves it without PyTorch, in a second."""
    folder = tmp_path_factory.mktemp("built_in") / "index"
    index("vocable-mini-doc", corpus, folder, bm25=True, device="cpu").close()
    return folder


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    """The test's own index with BM25, closed."""
    return copy_store(closed_store, tmp_path / "store")


@pytest.fixture(scope="module")
def served() -> Iterator[Callable[..., Client]]:
    """Serve an index in this process; closed at the end."""
    clients: list[Client] = []

    def serve(
        place: Path,
        *,
        token: str | None = None,
        **options: Any,
    ) -> Client:
        options = {"device": "cpu", "allow_host": ["test"], **options}
        settings = WorkerSettings(str(place), None, "127.0.0.1", token, check(ServiceOptions, options))
        clients.append(Client(application(settings)))
        return clients[-1]

    yield serve
    for client in clients:
        client.service.close()


@pytest.fixture(scope="module")
def client(served: Callable[..., Client], exact: Path) -> Client:
    """A service of the index whose documents stay as they are."""
    return served(exact)


@pytest.fixture
def collection(served: Callable[..., Client], exact: Path) -> Collection:
    """The index whose documents stay as they are, as it is opened elsewhere."""
    from vocable.collection.collection import open_index

    return open_index(exact, device="cpu")


@pytest.fixture(scope="module")
def changeable(served: Callable[..., Client], closed_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A service of an index that can change, for tests that leave its documents as they were."""
    return served(copy_store(closed_store, tmp_path_factory.mktemp("changeable") / "store"))
