"""Toy backbones of several architectures and tokenizer families: small, random and made offline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from vocable.adapt.calibrate import calibrate
from vocable.torch_models.fuse import parts
from vocable.torch_models.sparse_encoder import sparse_encoder

ACTIVE = 0.1  # share of the vocabulary that a toy backbone makes active after max pooling
PADDED_COLUMNS = 5  # ModernBERT's head is wider than its tokenizer, as the real one's is


def _pieces(texts: list[str], *, lower: bool) -> tuple[list[str], list[str]]:
    """Starts and continuations of words, most frequent first, every character last: all of `texts` can be spelled.

    Made by hand, because the library's WordPiece and Unigram trainers give another vocabulary in every process.
    """
    counts = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower() if lower else text))
    words = sorted(counts, key=lambda word: (-counts[word], word))
    starts = [word if i % 3 else word[:4] for i, word in enumerate(words)]
    rests = [word[4:] for word in words[::3] if len(word) > 4]
    characters = sorted({character for word in words for character in word})
    return list(dict.fromkeys(starts + characters)), list(dict.fromkeys(rests + characters))


def _wordpiece(texts: list[str], special: list[str]) -> Tokenizer:
    starts, rests = _pieces(texts, lower=True)
    vocabulary = [*special, *starts, *(f"##{rest}" for rest in rests)]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token=special[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _byte_level(texts: list[str], special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _unigram(texts: list[str], special: list[str]) -> Tokenizer:
    starts, rests = _pieces(texts, lower=False)
    pieces = dict.fromkeys([f"▁{start}" for start in starts] + rests + ["▁"])
    scored = [(token, 0.0) for token in special] + [(piece, -1.0 - 0.02 * i) for i, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=1, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _special(*tokens: str) -> dict[str, str]:
    return dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), tokens, strict=True))


BERT_SPECIAL = _special("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL = _special("<pad>", "<unk>", "<s>", "</s>", "<mask>")


FAMILIES = {
    "wordpiece": (_wordpiece, BERT_SPECIAL),
    "byte-level": (_byte_level, ROBERTA_SPECIAL),
    "unigram": (_unigram, BERT_SPECIAL),
}


def make_tokenizer(family: str, texts: list[str]) -> PreTrainedTokenizerFast:
    make, special = FAMILIES[family]
    names = list(special.values())
    if special is ROBERTA_SPECIAL:
        names[:2] = reversed(names[:2])  # RoBERTa counts positions from its padding, token 1
    tokenizer = make(texts, names)
    cls, sep = special["cls_token"], special["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", special_tokens=[(name, tokenizer.token_to_id(name)) for name in (cls, sep)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, model_input_names=["input_ids", "attention_mask"], **special
    )


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
# A large spread of the random weights makes logits differ between tokens, as a trained model's do.
SPREAD = {"initializer_range": 0.2}
POSITIONS = 80


def _modernbert(vocab_size: int, bos_token_id: int, eos_token_id: int, **others: int) -> PreTrainedConfig:
    vocabulary = {"bos_token_id": bos_token_id, "eos_token_id": eos_token_id}
    vocabulary |= {
        "cls_token_id": bos_token_id,
        "sep_token_id": eos_token_id,
        "vocab_size": vocab_size + PADDED_COLUMNS,
    }
    return ModernBertConfig(**SIZES, **SPREAD, **vocabulary, **others)


CONFIGURATIONS: dict[str, Callable[..., PreTrainedConfig]] = {
    "bert": partial(BertConfig, **SIZES, **SPREAD),
    "distilbert": partial(DistilBertConfig, dim=32, n_layers=2, n_heads=2, hidden_dim=48, **SPREAD),
    "roberta": partial(RobertaConfig, **SIZES, **SPREAD),
    "albert": partial(AlbertConfig, embedding_size=16, **SIZES, **SPREAD),
    "modernbert": _modernbert,
    "electra": partial(ElectraConfig, embedding_size=16, **SIZES, **SPREAD),
    "deberta": partial(
        DebertaV2Config,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=16,
        **SIZES,
        **SPREAD,
    ),
    "mpnet": partial(MPNetConfig, **SIZES, **SPREAD),
}


def make_backbone(
    name: str, tokenizer: PreTrainedTokenizerFast, texts: list[str], folder: Path, *, positions: int = POSITIONS
) -> None:
    """Save a masked language model and its tokenizer, random but for an output bias calibrated on `texts`."""
    config = CONFIGURATIONS[name](
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        max_position_embeddings=positions,
    )
    torch.manual_seed(0)
    mlm = AutoModelForMaskedLM.from_config(config)
    torch.nn.init.normal_(mlm.get_output_embeddings().bias, std=0.5)
    mlm = parts(calibrate(sparse_encoder(mlm, tokenizer), texts, activation_rate=ACTIVE)).mlm
    del mlm.config.vocable  # a checkpoint like others, of which nothing is known
    mlm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_cross_encoder(tokenizer: PreTrainedTokenizerFast, folder: Path, labels: int = 1) -> Path:
    """Save a random cross encoder and its tokenizer, and return the folder."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), num_labels=labels, max_position_embeddings=POSITIONS, **SIZES, **SPREAD
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
