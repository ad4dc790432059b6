"""The service of an index that can be opened again while requests are answered."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from multiprocessing import parent_process
from threading import Thread

from vocable.service.service import Service


class Served:
    """The service `now`; after a reload, the earlier service finishes its requests."""

    def __init__(self, service: Service, reopen: Callable[[], Service]) -> None:
        self.now, self._reopen = service, reopen
        self._before = list[Service]()
        self._lock = asyncio.Lock()

    async def reload(self) -> None:
        """Open the index again, with its model; if that fails, the service stays. Of several processes, restart all."""
        if parent_process() is not None:
            os.kill(os.getppid(), signal.SIGHUP)
            return
        async with self._lock:
            new = await asyncio.to_thread(self._reopen)
            old, self.now = self.now, new
            self._before.append(old)
            seconds = old.limits["timeout"]  # no request takes longer
            asyncio.get_running_loop().call_later(seconds, Thread(target=self._close, args=(old,)).start)

    def close(self) -> None:
        """Close the service, and those before that are still open."""
        for service in [self.now, *self._before]:
            service.close()

    def _close(self, service: Service) -> None:
        if service in self._before:
            self._before.remove(service)
            service.close()
