from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from vocable.data import read_corpus
from vocable.data.folder import with_urls
from vocable.data.pages.blocks import Block, PageError
from vocable.errors import DataError

pytest.importorskip("pypdfium2")

from vocable.data.pages.pdf import pdf_page


def pdf(pages: list[list[str]], outline: Sequence[tuple[int, str]] = (), title: str = "") -> bytes:
    """Return a PDF file with lines of text on pages, and an outline of page numbers and titles at one level."""
    objects = ["<< /Type /Catalog /Pages 2 0 R /Outlines 4 0 R >>"]
    first_page = 5 + len(outline)
    kids = " ".join(f"{first_page + 2 * number} 0 R" for number in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    last = f"/First 5 0 R /Last {4 + len(outline)} 0 R" if outline else ""
    objects.append(f"<< /Type /Outlines {last} /Count {len(outline)} >>")
    for number, (page, name) in enumerate(outline):
        beside = (f"/Next {6 + number} 0 R " if number + 1 < len(outline) else "") + (
            f"/Prev {4 + number} 0 R" if number else ""
        )
        target = first_page + 2 * (page - 1)
        objects.append(f"<< /Title ({name}) /Parent 4 0 R {beside} /Dest [{target} 0 R /Fit] >>")
    for number, lines in enumerate(pages):
        shown = "".join(f"({line}) Tj 0 -20 Td\n" for line in lines)
        stream = f"BT /F1 12 Tf 72 720 Td\n{shown}ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {first_page + 2 * number + 1} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< /Title ({title}) >>" if title else "<< >>")
    body, places = "%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    body += f"xref\n0 {size}\n0000000000 65535 f \n{table}"
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R /Info {size - 1} 0 R >>"
    return f"{body}{trailer}\nstartxref\n{body.index('xref')}\n%%EOF".encode()


def test_a_page_without_an_outline_is_a_section_of_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf([["One line", "and another"], ["Second page"]]))
    assert pdf_page(tmp_path / "a.pdf")[:4] == (
        [
            Block("Page 1", 1, 2, "page=1"),
            Block("One line\nand another", 1),
            Block("Page 2", 2, 2, "page=2"),
            Block("Second page", 2),
        ],
        "a",
        {},
        None,
    )


def test_headings_are_of_the_outline(tmp_path: Path) -> None:
    pages = [["Cover"], ["Start"], ["More"], ["End"]]
    (tmp_path / "a.pdf").write_bytes(pdf(pages, [(2, "Begin"), (2, "Within"), (4, "Finish")], "A manual"))
    page = pdf_page(tmp_path / "a.pdf")
    headings = [(block.text, block.anchor) for block in page.blocks if block.level]
    assert headings == [("Page 1", "page=1"), ("Begin", "page=2"), ("Within", "page=3"), ("Finish", "page=4")]
    assert page.title == "A manual"


def test_running_headers_and_footers_are_no_text(tmp_path: Path) -> None:
    pages = [["The manual", f"Text {word}", "}", f"Page {number} of 4"] for number, word in enumerate("abcd")]
    (tmp_path / "a.pdf").write_bytes(pdf(pages))
    texts = [block.text for block in pdf_page(tmp_path / "a.pdf").blocks if not block.level]
    assert texts == ["Text a\n}", "Text b\n}", "Text c\n}", "Text d\n}"]


@pytest.mark.parametrize("content", [b"", b"%PDF-1.4\n", b"no pdf at all", b"\0" * 1000])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pdf").write_bytes(content)
    with pytest.raises(PageError):
        pdf_page(tmp_path / "a.pdf")
    with pytest.raises(DataError, match=r"a\.pdf:1: not a readable PDF"):
        list(read_corpus(tmp_path))


def test_documents_of_a_folder_lead_to_the_page(tmp_path: Path) -> None:
    words = [" ".join([word] * 70) for word in ("oil", "wax")]
    (tmp_path / "a b.pdf").write_bytes(pdf([[words[0]], [words[1]]]))
    found = list(with_urls(read_corpus(tmp_path), str(tmp_path), "https://x.org"))
    assert [(one.id, one.fields["path"], one.fields["url"]) for one in found] == [
        ("a b.pdf#page=1", "a b > Page 1", "https://x.org/a%20b.pdf#page=1"),
        ("a b.pdf#page=2", "a b > Page 2", "https://x.org/a%20b.pdf#page=2"),
    ]


def test_a_scan_without_text_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("Text.", encoding="utf-8")
    (tmp_path / "b.pdf").write_bytes(pdf([[], []]))
    assert [document.id for document in read_corpus(tmp_path)] == ["a.txt"]
    assert f"{tmp_path}/b.pdf:1: a PDF without text" in caplog.text
