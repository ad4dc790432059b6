"""What importing the package says to libraries by the environment, before they are loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SCRIPT = "import json, os, sys, vocable; print(json.dumps([dict(os.environ), 'torch' in sys.modules]))"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
        ({"GOMP_SPINCOUNT": "infinity"}, {"GOMP_SPINCOUNT": "infinity", "KMP_BLOCKTIME": "1"}),
        ({"KMP_BLOCKTIME": "200"}, {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "200"}),
    ],
)
def test_waiting_is_bounded_unless_the_user_has_said_something(given: dict[str, str], left: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    printed = subprocess.check_output([sys.executable, "-c", SCRIPT], env=environment)
    found, torch_is_loaded = json.loads(printed)
    assert {name: found[name] for name in NAMES if name in found} == left
    assert not torch_is_loaded


@pytest.mark.parametrize(("given", "left"), [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_large_pages_are_asked_for_unless_the_user_has_said_something(given: dict[str, str], left: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"} | given
    found, _ = json.loads(subprocess.check_output([sys.executable, "-c", SCRIPT], env=environment))
    assert found["THP_MEM_ALLOC_ENABLE"] == left
