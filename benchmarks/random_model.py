"""A model to measure with where none is at hand: MiniLM's shape, random weights, a trained model's sparsity.

Time and memory depend on shapes and on how many terms are active, not on what the weights say: the output bias is
shifted so that about 1 % of the vocabulary is active after pooling over 128 tokens, as in a model trained with FLOPS
regularization.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from vocable.adapt.calibrate import calibrate
from vocable.torch_models.fuse import parts
from vocable.torch_models.sparse_encoder import sparse_encoder

LAYERS, HIDDEN, VOCABULARY = 6, 384, 30_522
ACTIVE = 0.01  # share of the vocabulary that is active in a text
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DESCRIPTION = f"random BERT, {LAYERS} layers, d = {HIDDEN}, v = {VOCABULARY:,}, {ACTIVE:.0%} of terms active"


def write_random_model(folder: Path, texts: Sequence[str], v: int = VOCABULARY) -> Path:
    """Write a plain masked-language-model checkpoint with a WordPiece tokenizer learned from `texts` to `folder`.

    The model has v terms; the tokenizer is the same whatever v is, and may have fewer.
    """
    tokenizer = _tokenizer(texts)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=v,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=12,
        intermediate_size=4 * HIDDEN,
    )
    long = [" ".join(texts[i : i + 8]) for i in range(0, 512, 8)]
    model = calibrate(sparse_encoder(BertForMaskedLM(config), tokenizer), long, activation_rate=ACTIVE, max_length=128)
    parts(model).mlm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=256, **names)


def write_toy_model(folder: Path, texts: Sequence[str]) -> Path:
    """Write a checkpoint of the smallest size that does everything, d = 32 and two layers, to `folder`."""
    tokenizer = _tokenizer(texts)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=256,
        initializer_range=0.2,
    )
    model = calibrate(sparse_encoder(BertForMaskedLM(config), tokenizer), texts, activation_rate=0.1)
    parts(model).mlm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
