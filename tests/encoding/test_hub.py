"""Names of models: built-in, in packages, in folders; and what a name must not lead to."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from vocable.encoding.hub import locate
from vocable.encoding.load import load
from vocable.errors import ModelError


def test_a_name_near_a_built_in_one_is_hinted(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", offline)
    with pytest.raises(ModelError, match=r"^vocable-mni: .*vocable-mini"):
        load("vocable-mni")


@pytest.mark.parametrize("name", ["no/such-model", "/no/such/folder", "not a name at all", ""])
def test_missing_models_are_refused_without_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a host was asked for"))
    with pytest.raises(ModelError):
        load(name)


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ModelError, match="no_such_package"):
        locate("package:no_such_package/folder")


@pytest.mark.parametrize(
    "name",
    ["package:os/..", "package:../x", "package:", "package:vocable/../../x", "package:vocable//etc", "package:a b/c"],
)
def test_a_package_s_folder_lies_within_it(name: str) -> None:
    with pytest.raises(ModelError):
        locate(name)


@pytest.mark.parametrize("name", ["package:os.path/x", "package:vocable.errors/x", "package:vocable/no-such-folder"])
def test_a_module_has_no_folders(name: str) -> None:
    with pytest.raises(ModelError):
        locate(name)


def test_a_package_s_folder_is_found_without_a_copy() -> None:
    assert Path(locate("package:vocable/torch_models")).joinpath("head.py").is_file()
