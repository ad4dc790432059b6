"""The client as a light module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import refused
from tests.engines.cluster import serving_http
from vocable.errors import ServiceError
from vocable.service.client import Client


def test_a_client_loads_no_model_library() -> None:
    heavy = "torch", "transformers", "sentence_transformers", "fastapi"
    code = f"import sys, vocable.service.client; print([one for one in {heavy} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("verb", ["search", "delete", "explain", "add", "evaluate"])
@pytest.mark.parametrize(
    "address",
    ["https://user:PASSWORD@localhost:1/", "http://user:PASS@WORD@localhost:1", "https://user:PASSWORD@localhost:bad"],
)
def test_a_password_in_an_address_is_in_no_error(
    verb: str, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet_libraries: None
) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "river"}')
    word = tmp_path / "corpus.jsonl" if verb in ("add", "evaluate") else "river"
    line = refused(capsys, verb, address, word)
    assert "WORD" not in line
    assert "user:***@localhost" in line or verb == "evaluate"


def test_a_service_that_answers_with_an_error_is_named_without_its_password() -> None:
    with serving_http(lambda *_: (401, {"error": "a bearer token is needed"}), {}) as url:
        address = url.replace("//", "//user:PASSWORD@")
        with Client(address) as client, pytest.raises(ServiceError, match=r"//user:\*\*\*@.*: 401: ") as caught:
            client.info()
        assert "PASSWORD" not in str(caught.value)
