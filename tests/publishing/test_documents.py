"""The fields of published documents that become filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.publishing.reading import read_file
from vocable.data import Document
from vocable.publishing.documents import Shown, write_fields, write_groups
from vocable.publishing.files import SiteFiles


def test_fields_with_a_value_of_its_own_in_most_pages_are_no_filters(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    documents = [
        Document(
            f"{page}#{section}",
            "A text.",
            "A title",
            {
                "file": f"{page}.md",
                "date": f"2026-01-{page:02d}",
                "lang": "de" if page % 2 else "en",
                "year": page // 10,
            },
        )
        for page in range(1, 31)
        for section in range(4)
    ]
    fields = write_fields(SiteFiles(tmp_path, None), documents)
    assert [(field.name, field.values) for field in fields] == [("lang", ["de", "en"]), ("year", [0, 1, 2, 3])]
    few = write_fields(SiteFiles(tmp_path, None), documents[:20])  # five pages with five dates
    assert "date" in [field.name for field in few]


def test_pages_can_be_filtered_by_their_folders(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    files = ["a/b/x.md", "a/b/y.md", "a/z.md", "a/z.md", "top.md"]
    documents = [Document(str(row), "text", fields={"file": file}) for row, file in enumerate(files)]
    [field] = write_fields(SiteFiles(tmp_path, None), documents)
    assert (field.name, field.values, field.counts) == ("folder", ["a/", "a/b/"], [4, 2])


def test_groups_are_written_by_their_rows(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    files = SiteFiles(tmp_path, None)
    name = write_groups(files, ["fox", "owl", "fox", None, "owl", "fox", None])
    assert name is not None
    assert read_file(tmp_path, name) == bytes([2, 3, 0, 2, 3, 2, 1, 3])  # two groups: rows 0, 2, 5 and rows 1, 4
    assert write_groups(files, ["fox", "cat", None, None]) is None


@pytest.mark.parametrize(
    ("text", "length"),
    [("東京 " + "都の猫は本を読む" * 100, 500), ("x" + "👩‍💻" * 200, 499), ("fox " * 200, 499), ("fox", 3)],
)
def test_a_shown_text_is_cut_near_the_limit(text: str, length: int) -> None:
    shown = Shown.of(Document("d", text), 500).text
    assert shown == (text if len(text) <= 500 else text[:length] + " …")
