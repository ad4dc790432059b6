"""Compiled kernels of the exact index."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vocable.indexes import exact_kernels as kernels


def test_a_kernel_is_compiled_anew_where_its_code_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def successor(number: int) -> int:
        return number + 1

    assert kernels.compiled(successor)(1) == 2
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])  # as without a folder to write to
    assert kernels.compiled(successor)(2) == 3


LAZY = """
import sys
from vocable.cli.search import LEFT_OUT_OF_NUMPY, _load_when_used
_load_when_used(*LEFT_OUT_OF_NUMPY)
import vocable.indexes.exact_kernels
print("MaskedArray" in object.__getattribute__(sys.modules["numpy.ma"], "__dict__"))
"""


def test_threads_of_the_kernels_find_masked_arrays_loaded() -> None:
    """Numba asks for them at each call; two threads that load a lazy module at once fail."""
    assert subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True).stdout == "True\n"
