"""Imported by the process that `forks` forks."""

from tests.torture.preloaded import preload

preload()
