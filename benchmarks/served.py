"""`vocable serve` as a separate process, for the benchmarks that load and fuzz it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Self


class Served:
    """A process that serves: `url`, and the memory that it and its workers have."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Start a command that says "... at http://HOST:PORT" on stderr once it listens."""
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.failures: list[str] = []  # what it has logged of requests that failed
        assert self.process.stderr is not None
        self.said: list[str] = []  # lines until it listens
        for line in self.process.stderr:
            self.said.append(line)
            if match := re.search(r" at (http://\S+)$", line):
                self.url = match[1]
                break
        else:
            raise RuntimeError("".join(self.said))
        threading.Thread(target=self._drain, args=(self.process.stderr,), daemon=True).start()

    @classmethod
    def vocable(cls, *arguments: object, environment: dict[str, str] | None = None) -> Self:
        """Serve an index at a free port."""
        return cls([sys.executable, "-m", "vocable", "serve", *map(str, arguments), "--port", "0"], environment)

    def _drain(self, lines: IO[str]) -> None:
        self.failures.extend(line for line in lines if '"level": "error"' in line)

    @property
    def memory(self) -> float:
        """MiB of the process and those that it has started."""
        processes = [self.process.pid]
        for process in processes:
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                processes += [int(child) for child in children.read_text().split()]
        pages = sum(int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in processes)
        return pages * 4096 / 2**20

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)
