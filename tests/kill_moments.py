"""Moments at which a process kills itself, for `break.py` and for the tests."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from typing import Any


def kill_at_call(module: str, function: str, times: int) -> None:
    """Kill this process when a function, or the method CLASS.NAME, of a module is called for the n-th time."""
    owner_name, _, name = function.rpartition(".")
    owner = getattr(import_module(module), owner_name) if owner_name else import_module(module)
    original, calls = getattr(owner, name), 0

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, name, counted)
