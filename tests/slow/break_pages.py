"""Cases of `break.py` about pages: mutated files of every format, read one by one within the bounds of a page.

A file is read or it is a bad file that is named; neither costs more than `SECONDS` of a processor and `MEGABYTES`.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import active_children
from pathlib import Path

from break_toys import Case
from preloaded import end, start

from tests.data.pages.test_docx import PARAGRAPH, docx
from tests.data.pages.test_pdf import pdf
from vocable.data.folder import folder_items
from vocable.data.pages.reader import READERS
from vocable.errors import DataError

SECONDS, MEGABYTES = 5.0, 500
LARGEST = 60_000  # characters of a mutated text, before it is packed
FILES = 45  # of a case
TEXTS = {
    ".md": """---
title: Lamps
tags: [oil, wax]
---
# Lamps {#top}

They *burn* [^1] <b>bright</b> `x` ![alt](b.png) <https://a.b>.

| a | b |
|---|---|
| 1 | **2** |

!!! note "Oil"
    Text.

- [x] one
  1. two

> [!TIP]
> Quote.

```python
light()
```

[^1]: A note.

<div hidden><p>x</p></div>
""",
    ".mdx": """import Tabs from '@theme/Tabs'

# Lamps

{/* a comment */}

<Tabs label={`x`}>
  <Tab title='a'>**oil**</Tab>
</Tabs>

:::tip[Wax]
Text {'shown'} {props.x}
:::

export const a = {b: [1, 2]}

<!-- no -->
""",
    ".html": """<!doctype html><html><head><title>Lamps</title><style>a{}</style></head><body><nav>Home</nav>
<main><h1 id=a>Lamps<a class=headerlink>#</a></h1><p>They <b>burn</b> &amp; <ruby>漢<rt>かん</rt></ruby>
<sup><a href=#f>1</a></sup></p><table><tr><th>a<td>b</table><pre>x
  y</pre><ul><li>one<li>two</ul><script>x</script></main>""",
    ".rst": """Lamps
=====

.. |v| replace:: 2

They *burn* ``x`` :ref:`a <b>` |v| [1]_.

.. note:: Oil

   Text::

     code

.. csv-table:: T
   :header: a, b

   1, 2

+---+---+
| a | b |
+---+---+

.. [1] Note.
""",
    ".adoc": """:v: 2
= Lamps
Ann

== Oil [[oil]]

They *burn* {v} <<oil,here>> image::a.png[alt]

[source,subs=attributes+]
----
run {v}
----

|===
|a |b
a|
!===
!c
!===
|===

term:: text

* one
+
ifdef::x[one]
""",
    ".txt": "Lamps\n\nThey burn.\nBright.\n\nOil and wax. " * 20,
    ".ipynb": json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["# Lamps\n", "Oil"]},
                {"cell_type": "code", "source": "light()", "outputs": [{"data": {"image/png": "iVBO" * 500}}]},
            ],
            "nbformat": 4,
        }
    ),
    ".docx": PARAGRAPH * 40,
    ".pdf": "\n".join(["They burn.", "Oil and wax"] * 30),
}
NESTS = {  # of each format: what begins and what ends a level
    ".md": ["> ", "- ", "[", "![", "*a ", "<div>", "    ", "((", "`", "<a><b", "!!! a\n    "],
    ".mdx": ["{", "<A>", "<a b={", ":::a\n", "> ", "`${", "<>"],
    ".html": ["<div>", "<b><i>", "<table><tr><td>", "<ul><li>", "<!--", "<svg>", "<a b='", "<ruby><rt>", "<h1>", "&#1"],
    ".rst": [".. note::\n ", "  ", "* ", "`", "|a|", "..\n ", ".. a::\n   :b:\n"],
    ".adoc": ["====\n", "[[a", "<<", "a::\n", "|===\na|\n", "image::a[", "{a", "((("],
    ".txt": [" ", "("],
    ".ipynb": ["[", '{"a":', '{"cells":[', '"\\u'],
    ".docx": ["<w:p>", "<w:sdt><w:sdtContent>", "<w:tbl><w:tr><w:tc>", "<w:r><w:t>", "<a>"],
    ".pdf": ["q ", "[", "<<", "BT ", "(", "/a BDC "],
}
BOMBS: dict[str, list[tuple[str, str, int, str]]] = {  # what is before, repeated at most so often, and after
    ".md": [
        ("|a" * 5000 + "|\n" + "|-" * 5000 + "|\n", "|\n", 5000, ""),
        ("".join(f"[a{n}]: /b\n" for n in range(3000)), "[a1] ", 5000, ""),
        (f"---\na: {'x' * 15_000}\n---\n", "# b\n\n", 9000, ""),
    ],
    ".mdx": [("", "import a from 'b'\n", 3000, ""), ("{" * 19, "a", 9000, "}" * 19), ("", "<A b=", 12_000, "")],
    ".html": [("", "<h1>a</h1>", 6000, ""), ("<p a=b", " a=b", 15_000, ">"), ("", "&amp", 15_000, "")],
    ".rst": [
        (".. |a| replace:: " + "x" * 9000 + "\n\n", "|a| ", 12_000, ""),
        ("", "".join(f"a\n{mark * 4}\n\n" for mark in "=-~^+*#.:'\""), 600, ""),
        ("", ".. note:: a\n", 5000, ""),
    ],
    ".adoc": [
        (":a0: xxxxxxxxxx\n" + "".join(f":a{n}: {f'{{a{n - 1}}}' * 10}\n" for n in range(1, 9)), "\n{a8}", 999, ""),
        (f":a: {'x' * 9000}\n\n", "{a}", 15_000, ""),
        ("", "image::a[", 6000, ""),
    ],
    ".txt": [("", "a\n\n", 20_000, ""), ("", ".", 60_000, ""), ("", "你", 20_000, "")],
    ".ipynb": [
        ('{"cells": [', '{"cell_type": "markdown", "source": "> > > > > > > > > a"},', 900, "1]}"),
        ('{"cells": [', "{},", 15_000, "1]}"),
        ('{"cells": [', '["a"],', 9_000, '{"cell_type": "code", "source": "a"}]}'),
    ],
    ".docx": [
        ("", PARAGRAPH, 100_000, ""),
        ("", "<w:p/>", 350_000, ""),
        ("", "<w:tbl><w:tr><w:tc><w:p/></w:tc></w:tr></w:tbl>", 100_000, ""),
    ],
    ".pdf": [("", "q 1 0 0 1 0 0 cm Q\n", 3_000_000, ""), ("", "(a) Tj ", 4_000_000, ""), ("", "[", 30_000_000, "")],
}


def page_cases(each: int) -> Iterator[Case]:
    """Cases of `each` mutated files of one format."""
    for ending in TEXTS:
        for mutate in (_bits, _cut, _nested, _repeated, _bomb):
            yield Case("pages", f"{ending}: {mutate.__name__[1:]}", partial(_case, ending, mutate, each))


Mutation = Callable[[random.Random, str], str]


def _bits(rng: random.Random, ending: str) -> str:
    """Change a few characters of a text to others, also to such of markup."""
    text = list(TEXTS[ending])
    for _ in range(rng.choice([1, 3, 10, 50])):
        text[rng.randrange(len(text))] = rng.choice([chr(rng.randrange(128)), rng.choice("<>[]{}*`|:&\n\\\0\u200b")])
    return "".join(text)


def _cut(rng: random.Random, ending: str) -> str:
    """Leave out, repeat or exchange a part of a text."""
    text = TEXTS[ending]
    start, end = sorted(rng.randrange(len(text)) for _ in range(2))
    return rng.choice([text[:end], text[start:], text[:end] + text[start:], text[start:] + text[:end]])


def _nested(rng: random.Random, ending: str) -> str:
    unit, text = rng.choice(NESTS[ending]), TEXTS[ending]
    place, depth = rng.randrange(len(text)), rng.choice([30, 300, 3000, LARGEST // len(unit)])
    return text[:place] + unit * depth + text[place:]


def _repeated(rng: random.Random, ending: str) -> str:
    """Repeat a short piece of markup, on a line or a line each."""
    marks = [*NESTS[ending], *"[](){}<>*_`~#|:;-=+.&!\\\"'$^%@/ \n\ta1", "::", "--", "**", "](", "a "]
    unit = "".join(rng.choices(marks, k=rng.randrange(1, 5))) + rng.choice(["", "", "\n"])
    return unit * (LARGEST // len(unit)) + rng.choice(["", TEXTS[ending]])


def _bomb(rng: random.Random, ending: str) -> str:
    before, unit, most, after = rng.choice(BOMBS[ending])
    return before + unit * rng.randrange(most // 2, most) + after


def _write(rng: random.Random, path: Path, text: str, is_raw: bool) -> None:
    """Write a text as a file of its format; with `is_raw`, bytes of the file are changed as well."""
    if path.suffix == ".docx":
        docx(path, text)
    elif path.suffix == ".pdf":
        path.write_bytes(_packed(text) if len(text) > LARGEST else pdf([text.split("\n")] * 3, [(1, "Lamps")]))
    else:
        path.write_text(text, encoding="utf-8", errors="replace")
    if is_raw:
        raw = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 4, 20])):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(raw[: rng.choice([len(raw), rng.randrange(len(raw))])])


def _packed(operators: str) -> bytes:
    """Return a PDF file of one page with a compressed stream of operators."""
    plain = pdf([["@"]])
    start, end = plain.index(b"<< /Length"), plain.index(b"endstream")
    stream = zlib.compress(b"BT /F1 12 Tf " + operators.encode(errors="replace"), 9)
    return plain[:start] + b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\n" % (len(stream), stream) + plain[end:]


def _case(ending: str, mutate: Mutation, each: int, folder: Path) -> tuple[str, str]:
    rng = random.Random(f"{ending} {mutate.__name__}")
    pages = folder / "pages"
    pages.mkdir()
    for number in range(each):
        is_raw = mutate in (_bits, _cut) and rng.random() < 0.5
        _write(rng, pages / f"{number:03d}{ending}", mutate(rng, ending), is_raw)
    ran = end(start(folder, partial(_read_all, pages)), folder, 10 * SECONDS * each)  # beside other work
    if ran.status is None:
        return "HANG", ran.out
    if ran.status:
        return ("CRASH" if ran.status < 0 else "TRACEBACK"), f"{ran.out.strip()} {ran.err.strip()[-300:]}"
    lines = [json.loads(line) for line in ran.out.splitlines()]
    bad = [line for line in lines if line["fault"]]
    costly = [line for line in lines if line["seconds"] > SECONDS or line["megabytes"] > MEGABYTES]
    ours = [line for line in bad if ending in READERS and "not readable as" in line["fault"]]
    most = [max(line[name] for line in lines) for name in ("seconds", "megabytes")]
    what = f"{len(lines)} files, {len(bad)} of them bad, at most {most[0]:.1f} s and {most[1]} MB a file"
    if len(lines) < each or costly or ours:
        return "WRONG", f"{what}: {[*costly, *ours][:3]}"
    return "right", what


def _read_all(pages: Path) -> None:
    """Read each page of a folder on its own, and print its fault, and what that cost in this process and others."""
    base = _peak(os.getpid())  # of the libraries
    for file in sorted(pages.iterdir()):
        before, faults, peaks = _used(), set[str](), [0]
        try:
            for item in folder_items(pages, [file.name]):
                faults.add(item.fault)
                peaks += [_peak(child.pid) for child in active_children() if child.pid]
        except DataError as error:
            if "no text in" not in str(error):
                raise
        seconds = sum(after - earlier for after, earlier in zip(_used(), before, strict=True))
        megabytes = max(_peak(os.getpid()) - base, *peaks) >> 10
        fault = "; ".join(filter(None, faults))
        print(json.dumps({"file": file.name, "fault": fault, "seconds": seconds, "megabytes": megabytes}), flush=True)


def _peak(process: int) -> int:
    """Return the most memory that a process has used since it began, in kilobytes."""
    match = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(match[1]) if match else 0


def _used() -> tuple[float, float]:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime
