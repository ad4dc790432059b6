"""HTML of explanations and hits for notebooks: elements with inline styles, without scripts or style sheets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

SIGNS = {"text": "", "expansion": "+", "wacky": "~"}  # before a term, for readers who cannot distinguish the colours
COLOURS = {  # readable on a light and on a dark background
    "text": "#3572b8",
    "expansion": "#b3621c",
    "wacky": "repeating-linear-gradient(115deg, #b3621c 0 2px, transparent 2px 5px)",
}
UNDERLINES = {"text": "solid", "expansion": "dashed", "wacky": "double"}  # under a term in a text
BARS = 20  # most terms in a list


def bars(title: str, terms: Sequence[tuple[str, str, str, float]]) -> str:
    """Return terms (name, origin, number, length) with bars, like the page of the service."""
    longest = max((length for *_, length in terms), default=1.0)
    hidden = len(terms) - BARS
    cells = "".join(
        f'<span style="display:inline-block;width:9em;margin:0 1em .4em 0">{SIGNS[origin]}{escape(term)}'
        f'<span style="float:right">{number}</span><span style="display:block;clear:both;height:4px;'
        f'width:{length / longest:.0%};background:{COLOURS[origin]}" title="{origin}"></span></span>'
        for term, origin, number, length in terms[:BARS]
    )
    origins = {origin for _, origin, _, _ in terms}
    key = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items() if sign and name in origins)
    more = f"and {hidden} more" if hidden > 0 else ""
    return f"<div><div><b>{title}</b> <small>{key}</small></div>{cells}<div>{more}</div></div>"


def marked(parts: Iterable[tuple[str, str | None, str | None]]) -> str:
    """Return a text from its parts (text, term, origin); a part without a term is plain text."""
    style = 'style="color:inherit;background:none;border-bottom:2px {} #3572b8" title="{}"'
    return "".join(
        f"<mark {style.format(UNDERLINES[origin], escape(term))}>{escape(text)}</mark>"
        if term and origin
        else escape(text)
        for text, term, origin in parts
    )


def hit(head: str, title: str, about: str, text: str, explanation: str) -> str:
    """Return a hit: `text` and `explanation` are HTML, the other arguments plain texts."""
    why = f"<details><summary>why</summary>{explanation}</details>" if explanation else ""
    line = f"{escape(head)} <b>{escape(title)}</b> <small>{escape(about)}</small>"
    return f'<div style="margin:0 0 1em"><div>{line}</div><div>{text}</div>{why}</div>'


def answer(query: str, hits: Iterable[str]) -> str:
    """Return a query above its hits, which are HTML."""
    return f'<div><div style="margin:0 0 1em"><b>{escape(query)}</b></div>{"".join(hits) or "no hits"}</div>'
