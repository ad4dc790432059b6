"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vocable.errors import ArgumentError

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the result; there only when it is whole.")]
NewHead = Annotated[
    bool, typer.Option("--new-head", help="Of an encoder without a masked-language-model head: make it a new one.")
]
TopK = Annotated[int | None, typer.Option(help="Keep only so many terms of a text, the heaviest.")]
MinWeight = Annotated[float, typer.Option(help="Drop terms lighter than this.")]
Mass = Annotated[float | None, typer.Option(help="Keep the fewest terms with this share of a text's weight.")]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"], typer.Option("--dtype", help="auto: bfloat16 where the processor has it.")
]
MaxLength = Annotated[int | None, typer.Option(help="Tokens of a text, in place of the model's own length.")]
SkipBad = Annotated[int, typer.Option("--skip-bad", metavar="N", help="Tolerate up to N bad lines in the input.")]
Measures = Annotated[
    list[str] | None, typer.Option("-m", "--measure", help="ir_measures name such as nDCG@10; may be repeated.")
]


def parse_numbers(text: str, option: str) -> list[int]:
    """The whole numbers of "5,10,20".

    >>> parse_numbers("5,10,20", "--top")
    [5, 10, 20]
    """
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise ArgumentError(f"{option} is numbers with commas between, as 10,100, not {text!r}")
    return [int(number) for number in numbers]


def model_name(name: str) -> str:
    """How a model is written down with what it made."""
    from vocable.encoder.stream import model_name as written_down

    return written_down(name)


def read_text(text: str) -> str:
    """The text itself, or with an @ in front the content of a file.

    Raises:
        ArgumentError: the file is not there, or not UTF-8.
    """
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ArgumentError(f"{text[1:]}: no such file (a text that begins with @ names one)") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{text[1:]}: not UTF-8") from error
