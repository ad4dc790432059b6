"""The readiness of an index to be searched, by the last answers of its servers, for /ready and for metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import numpy as np
from scipy.sparse import csr_array

from vocable.collection.collection import Collection
from vocable.engines.health import Health
from vocable.engines.patience import requests
from vocable.engines.server import ServerStore
from vocable.engines.several import SeveralStore
from vocable.service.batching import OverloadedError
from vocable.service.metrics import Metrics

REST_SECONDS = 5.0  # after a failure, during which requests to a server fail at once
FRESH_SECONDS = 5.0  # after a search, during which the place is not asked again
PROBE_SECONDS = 2.0  # that /ready waits for the answer to a search


class Readiness:
    """The health of the servers of a store; a folder has none, and is always ready."""

    def __init__(self, collection: Collection, metrics: Metrics) -> None:
        self._collection, self._healths, store = collection, list[Health](), collection.store
        for part in store.stores if isinstance(store, SeveralStore) else [store]:
            if isinstance(part, ServerStore):
                part.health = Health(REST_SECONDS, metrics.server_request)
                self._healths.append(part.health)

    async def check(self, call: Callable[..., Awaitable[object]]) -> str | None:
        """Search the place by `call` unless it was searched a moment ago; return what searches leave out.

        Raises `VocableError` or `TimeoutError` if it cannot be searched.
        """
        now = time.monotonic()
        if any(health.failure or now - health.answered > FRESH_SECONDS for health in self._healths):
            async with asyncio.timeout(2 * PROBE_SECONDS):
                with suppress(OverloadedError):  # other searches wait: they say what the place is like
                    await call(self._search)
        return next((health.missing for health in self._healths if health.missing), None)

    def _search(self) -> None:
        """Search for a single term, which asks all parts of the place."""
        with requests(longest=PROBE_SECONDS):
            if columns := self._collection.settings.meta.size:
                term = csr_array(([1.0], ([0], [0])), shape=(1, columns), dtype=np.float32)
                self._collection.store.search(term, 1)
            else:  # of several indexes that share no sparse vectors
                len(self._collection)

    @property
    def failure(self) -> str | None:
        """Why a search failed; None if one has succeeded since."""
        return next((health.failure for health in self._healths if health.failure), None)
