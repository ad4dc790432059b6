"""`vocable serve` as a process, and where it listens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Process:
    """A running service: its address and the lines that it has logged; the lines before those of JSON are `said`."""

    def __init__(self, *arguments: object, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "vocable", "serve", *map(str, arguments), "--port", "0"]
        env = os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {})
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.said: list[str] = []
        self.log: list[str] = []
        for line in self._lines():
            self.said.append(line)
            if found := re.search(r" at (http://\S+)$", line):
                self.url = found[1]
                break
        else:
            raise RuntimeError(f"the service did not start: {self.said}")
        threading.Thread(target=lambda: self.log.extend(self._lines()), daemon=True).start()

    def _lines(self) -> Iterator[str]:
        assert self.process.stderr is not None
        return (line.rstrip("\n") for line in self.process.stderr)

    def stop(self, signal: int = 15) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(signal)
        return self.process.wait(60)


@contextmanager
def serving(place: Path, *arguments: object, environment: dict[str, str] | None = None) -> Iterator[Process]:
    """Serve an index while the context lasts."""
    process = Process(place, "--device", "cpu", *arguments, environment=environment)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
        process.process.wait()
        for stream in (process.process.stdout, process.process.stderr):
            assert stream is not None
            stream.close()
