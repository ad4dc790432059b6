"""Exceptions: their places, and the commands that install what is missing."""

from __future__ import annotations

import sys

import pytest

from vocable.errors import DataError, MissingExtraError, UnwrittenError, naming_extra, require_extra


@pytest.mark.parametrize(
    ("place", "message"),
    [({}, "empty"), ({"source": "a.tsv"}, "a.tsv: empty"), ({"source": "a.tsv", "line": 3}, "a.tsv:3: empty")],
)
def test_a_data_error_begins_with_its_source_and_line(place: dict[str, object], message: str) -> None:
    error = DataError("empty", **place)  # type: ignore[arg-type]
    assert str(error) == message
    assert (error.source, error.line) == (place.get("source"), place.get("line"))


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MissingExtraError, match=r"dask .*pip install 'vocable\[dask\]'"):
        require_extra("dask.distributed", "dask")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"torch .*pip install 'vocable\[train\]'"), naming_extra():
        import torch  # noqa: F401


def test_a_missing_package_of_no_extra_stays_a_module_that_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"), naming_extra():
        import no_such_package  # noqa: F401


def test_an_unwritten_file_keeps_the_result_of_the_work() -> None:
    error = UnwrittenError(OSError(28, "No space left", "out.json"), [1, 2])
    assert (str(error), error.result) == ("out.json: No space left", [1, 2])
