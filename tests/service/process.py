"""`vocable serve` as a process, and where it listens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.forks import Fork
from vocable.cli import main


class Process:
    """A running service: its address and the lines that it has logged; the lines before those of JSON are `said`.

    A fork (`tests.forks`), or with `fresh` a Python of its own.
    """

    def __init__(self, *arguments: object, environment: dict[str, str] | None = None, fresh: bool = False) -> None:
        command = ["serve", *map(str, arguments), "--port", "0"]
        more = {"OMP_NUM_THREADS": "1"} | (environment or {})
        self.process: Fork | subprocess.Popen[str]
        if fresh:
            words, pipe = [sys.executable, "-m", "vocable", *command], subprocess.PIPE
            self.process = subprocess.Popen(words, stderr=pipe, stdout=pipe, text=True, env=os.environ | more)
        else:
            self.process = Fork(main, command, environment=more)
        self.pid: int = self.process.pid
        self.said: list[str] = []
        self.log: list[str] = []
        for line in self._lines():
            self.said.append(line)
            if found := re.search(r" at (http://\S+)$", line):
                self.url = found[1]
                break
        else:
            raise RuntimeError(f"the service did not start: {self.said}")
        threading.Thread(target=self._read_log, daemon=True).start()

    def _lines(self) -> Iterator[str]:
        assert self.process.stderr is not None
        return (line.rstrip("\n") for line in self.process.stderr)

    def _read_log(self) -> None:
        with suppress(ValueError):  # the pipe is closed at the end of a test
            self.log.extend(self._lines())

    def stop(self, signal: int = 15) -> int:
        """Send a signal and return the exit status."""
        os.kill(self.pid, signal)
        return self.process.wait(60)


@contextmanager
def serving(
    place: Path | str, *arguments: object, environment: dict[str, str] | None = None, fresh: bool = False
) -> Iterator[Process]:
    """Serve an index while the context lasts."""
    process = Process(place, "--device", "cpu", *arguments, environment=environment, fresh=fresh)
    with process.process:
        try:
            yield process
        finally:
            process.process.kill()
