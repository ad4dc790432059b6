from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.pages.encodings import page_text

META = '<meta charset="{}">'
XML = '<?xml version="1.0" encoding="{}"?>'
HTTP = '<meta http-equiv="Content-Type" content="text/html; charset={}">'


@pytest.mark.parametrize("declaration", [META, XML, HTTP, META.replace('"', "")])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("utf-8", "日本語 – é"),
        ("iso-8859-2", "Dvořák"),
        ("koi8-r", "мир"),
        ("shift_jis", "日本語"),
        ("euc-jp", "日本語"),
        ("gb2312", "中文"),
        ("big5", "中文"),
        ("euc-kr", "한국어"),
        ("windows-1251", "мир"),
    ],
)
def test_a_page_is_read_in_the_encoding_it_declares(declaration: str, name: str, text: str) -> None:
    page = f"<title>x</title>{declaration.format(name)}<p>{text}"
    assert page_text(page.encode(name)) == (page, 0)


@pytest.mark.parametrize("name", ["latin1", "ISO-8859-1", "ascii", "no-such", "hex", "punycode", "utf-7", ""])
def test_latin_1_and_unknown_encodings_are_windows_1252_as_in_browsers(name: str) -> None:
    page = f'<meta charset="{name}">caf'
    assert page_text(page.encode() + b"\xe9 \x96 \x80") == (page + "é – €", 0)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_comes_before_a_declaration(encoding: str) -> None:
    page = "<meta charset=koi8-r>日本"
    assert page_text(page.encode(encoding)) == (page, 0)


def test_characters_that_cannot_be_read_are_counted() -> None:
    assert page_text(b"<meta charset=utf-8>a\xffb\xe9 c\0") == ("<meta charset=utf-8>a\ufffdb\ufffd c\ufffd", 3)
    assert page_text("a \ufffd".encode()) == ("a \ufffd", 0)
    assert page_text(b"<meta charset=utf-16>caf\xc3\xa9") == ("<meta charset=utf-16>café", 0)


@given(st.binary(max_size=60), st.sampled_from(["", "utf-8", "shift_jis", "iso-2022-jp", "gbk", "undefined", "idna"]))
def test_any_bytes_have_a_text(page: bytes, name: str) -> None:
    text, failures = page_text(f"<meta charset={name}>".encode() + page)
    assert "\0" not in text
    assert failures <= text.count("\ufffd")
    text.encode()
