"""The encoding of an HTML page as browsers determine it (WHATWG HTML, section 13.2.3)."""

from __future__ import annotations

import codecs
import re

BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
SCANNED = 4096  # bytes in which a page declares its encoding
DECLARATION = re.compile(
    rb"""<meta\b[^>]{0,500}?charset\s*=\s*["']?\s*([\w.:-]{1,40})|<\?xml\b[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""",
    re.IGNORECASE,
)
TEXT_ENCODING = re.compile(r"utf-8|(cp|iso8859-|koi8-|iso2022_|euc_|gb|big5|shift_jis|mac-|tis-620)\w*")
WIDER = {  # encodings that browsers read as another, which has further characters
    **dict.fromkeys(["ascii", "iso8859-1"], "cp1252"),
    **dict.fromkeys(["gb2312", "gbk"], "gb18030"),
    **dict.fromkeys(["iso8859-11", "tis-620"], "cp874"),
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}


def page_text(page: bytes) -> tuple[str, int]:
    """Return the text of an HTML page, and the number of U+FFFD in it for bytes that its encoding lacks and for zeros.

    A byte order mark tells the encoding, else the page declares it, else it is UTF-8, or Windows-1252 if UTF-8 fails.

    >>> page_text(b'<meta charset=iso-8859-1>caf\\xe9 \\x96 a\\0b')
    ('<meta charset=iso-8859-1>café – a\\ufffdb', 1)
    """
    name = next((name for mark, name in BYTE_ORDER_MARKS.items() if page.startswith(mark)), "") or _declared(page)
    failures = 0
    try:
        text = page.decode(name or "utf-8")
    except UnicodeDecodeError:
        text = page.decode(name or "cp1252", "replace")
        failures = text.count("\ufffd")
    failures += text.count("\0")
    return text.replace("\0", "\ufffd").removeprefix("\ufeff"), failures


def _declared(page: bytes) -> str:
    """Return Python's name of the encoding that a page declares, "" without a known one."""
    if (declaration := DECLARATION.search(page, 0, SCANNED)) is None:
        return ""
    try:
        name = codecs.lookup((declaration[1] or declaration[2]).decode()).name
    except (LookupError, ValueError):
        return ""
    if name.startswith("utf-16"):  # no page in UTF-16 can declare it
        return "utf-8"
    name = WIDER.get(name, name)
    return name if TEXT_ENCODING.fullmatch(name) else ""
