"""Signals: SIGTERM and SIGHUP end a command as Ctrl-C does, and interrupts do not get lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Raise `KeyboardInterrupt(number)` on SIGTERM and SIGHUP within the context, unless they are ignored (`nohup`).

    Forked children keep the default action. Python drops an interrupt that is raised in a destructor or a callback:
    such an interrupt is sent again a moment later.
    """
    process = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt(number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def resend(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            number = dropped.exc_value.args[0] if dropped.exc_value.args else signal.SIGINT
            threading.Timer(0.01, os.kill, [os.getpid(), number]).start()
        else:
            previous_hook(dropped)

    # Take signals with the default action. Ignored signals and handlers of others stay.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # only the main thread may set handlers
    numbers = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    previous_hook, sys.unraisablehook = sys.unraisablehook, resend
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
