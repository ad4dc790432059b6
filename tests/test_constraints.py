"""Versions: of what is installed with vocable, and of vocable itself."""

from __future__ import annotations

import tomllib
from importlib.metadata import distributions
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet

from vocable import __version__

ROOT = Path(__file__).parent.parent


def test_pinned_versions_are_for_the_oldest_python() -> None:
    """One that is for later ones only cannot be installed there, which the machine that pinned it does not notice."""
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line for line in lines if line and not line.startswith("#")}
    needs = {
        f"{one.name}=={one.version.partition('+')[0]}": one.metadata.get("Requires-Python") for one in distributions()
    }
    installed = pinned & needs.keys()
    assert len(installed) > len(pinned) / 2
    later = [pin for pin in installed if not SpecifierSet(needs[pin] or "").contains(f"{oldest.removeprefix('>=')}.0")]
    assert later == []


def test_the_citation_has_the_version_and_licence_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    names = ("version", "license", "keywords")
    assert {name: citation[name] for name in names} == {name: project[name] for name in names}
    assert citation["version"] == __version__
    assert citation["title"] == f"{project['name']}: {project['description'].partition(': ')[2]}"
