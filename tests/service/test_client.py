"""The client as a light module."""

from __future__ import annotations

import subprocess
import sys


def test_a_client_loads_no_model_library() -> None:
    heavy = "torch", "transformers", "sentence_transformers", "fastapi"
    code = f"import sys, vocable.service.client; print([one for one in {heavy} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
