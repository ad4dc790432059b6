"""Imported by the process that `forks` forks."""

from tests.slow.preloaded import preload

preload()
