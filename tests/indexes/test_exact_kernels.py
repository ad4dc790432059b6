"""Compiled kernels of the exact index."""

from __future__ import annotations

import pytest

from vocable.indexes import exact_kernels as kernels


def test_a_kernel_is_compiled_anew_where_its_code_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def successor(number: int) -> int:
        return number + 1

    assert kernels.compiled(successor)(1) == 2
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])  # as without a folder to write to
    assert kernels.compiled(successor)(2) == 3
