"""How much of one vocabulary other tokenizers have, by class of token.

    python benchmarks/overlap.py bert-base-uncased answerdotai/ModernBERT-base FacebookAI/roberta-base
    python benchmarks/overlap.py TOKENIZERS/bert-base-uncased TOKENIZERS/*

The first is the target. Each is a Hub id, or a folder with a whole tokenizer, or with nothing but its files:
`tokenizer.json`, `vocab.json` and `merges.txt` (byte-level BPE), or `vocab.txt` (WordPiece). The Vocabulary Transfer
paper (§5.2, §6.4) has 56.4 % of bert-base-uncased for ModernBERT, 59.6 % for RoBERTa and 60.9 % for bert-base-cased.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from transformers import (
    AutoTokenizer,
    BertTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
)

from vocable.adapt.alignment import Alignment, align
from vocable.encoding.tokens import CLASSES

# Which tokens are special is not in a bare tokenizer.json: these are, where the vocabulary has them.
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def read_tokenizer(place: str) -> PreTrainedTokenizerBase:
    folder = Path(place)
    if not folder.is_dir() or (folder / "tokenizer_config.json").exists():
        return AutoTokenizer.from_pretrained(place)
    if (folder / "tokenizer.json").exists():
        bare = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        known = {f"{role}_token": token for role, token in SPECIAL.items() if token in bare.get_vocab()}
        return PreTrainedTokenizerFast(tokenizer_object=bare.backend_tokenizer, **known)
    if (folder / "vocab.txt").exists():
        return BertTokenizer(vocab=str(folder / "vocab.txt"))
    return RobertaTokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))


def report(alignments: dict[str, Alignment], target: str) -> None:
    print(f"share of the tokens of {target} that each has; the total counts no special token as had\n")
    print(f"{'':28}{'total':>9}" + "".join(f"{name:>15}" for name in CLASSES))
    for name, alignment in alignments.items():
        counts = alignment.classes.values()
        cells = (f"{matched}/{total}" if total else "-" for matched, total in counts)
        print(f"{name:28}{alignment.overlap:9.2%}" + "".join(f"{cell:>15}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    options = parser.parse_args()
    target = read_tokenizer(options.target)
    alignments = {place.rstrip("/"): align(read_tokenizer(place), target) for place in options.sources}
    named = {Path(place).name: alignment for place, alignment in alignments.items()}
    if options.json:
        print(json.dumps({name: {"overlap": a.overlap, "classes": a.classes} for name, a in named.items()}, indent=1))
        return
    report(named, Path(options.target.rstrip("/")).name)


if __name__ == "__main__":
    main()
