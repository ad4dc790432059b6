"""The command publish: a site, its update, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command_line import done, refused


@pytest.mark.slow
def test_publish_writes_a_site_and_says_how_to_open_it(
    capsys: pytest.CaptureFixture[str], model: str, corpus: Path, tmp_path: Path
) -> None:
    lookup, index, site = tmp_path / "lookup", tmp_path / "index", tmp_path / "site"
    done(capsys, "index", model, corpus, "-o", tmp_path / "encoded")
    said = refused(capsys, "publish", tmp_path / "encoded", "-o", site)
    assert "vocable-mini-doc" in said
    assert not site.exists()
    done(capsys, "make-inference-free", model, "--weights", "ones", "-o", lookup)
    done(capsys, "index", lookup, corpus, "-o", index)
    made = done(capsys, "publish", index, "-o", site, "--title", "Mine")
    assert re.search(r"site: \d+ documents, .* \(\d+ written, 0 removed\)", made)
    assert f"next: python3 -m http.server --directory {site}" in made
    assert "no document has a field url" in made
    counts = json.loads(done(capsys, "publish", index, "-o", site, "--json"))  # the title is kept
    assert (counts["output"], counts["written"], counts["removed"]) == (str(site), 0, 0)
    assert counts["words"] > 0
    counts = json.loads(done(capsys, "publish", index, "-o", site, "--no-bm25", "--characters", 20, "--json"))
    assert counts["words"] == 0 < counts["removed"]
    said = refused(capsys, "publish", index, "-o", tmp_path)
    assert "something else" in said
    said = refused(capsys, "publish", tmp_path / "none", "-o", site)
    assert "no index" in said
