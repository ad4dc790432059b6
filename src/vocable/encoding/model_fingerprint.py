"""The fingerprint of a model: everything that its vectors depend on, so that a changed model is refused.

It has a value or a digest for each part: weights or graph, tokenizers, prompts, lengths, limits, pooling, and all
settings that change a number. It is stored with the vectors that the model made (`VectorsMeta.fingerprint`), and
compared whenever a model encodes for them. A part that only one of two fingerprints has is not compared: another
runtime has a graph and no weights, and a later release of transformers adds settings with their defaults.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, get_args

from tokenizers import Tokenizer

from vocable.encoding.protocol import TOKENIZING, Role
from vocable.encoding.vectors import FingerprintParts
from vocable.errors import VectorsError

DIGESTS = {
    "weights",
    "graph",
    "tokenizer",
    "query_weights",
    "query_vectors",
}  # parts whose values tell a reader nothing
# Settings that do not change a vector, or that other parts of the fingerprint contain.
WITHOUT_EFFECT = {
    "_name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "torch_dtype",
    "id2label",
    "label2id",
}
WITHOUT_EFFECT |= {"problem_type", "return_dict", "use_cache", "output_hidden_states", "output_attentions"}
WITHOUT_EFFECT |= {"gradient_checkpointing", "initializer_range", "chunk_size_feed_forward", "reference_compile"}
WITHOUT_EFFECT |= {"frozen", "embedding_dimension", "vocable", "active_terms", "query_idf"}


def relevant(settings: Mapping[str, Any]) -> FingerprintParts:
    """Return the settings that may change a vector, with lists and mappings as JSON.

    >>> relevant({"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "use_cache": True, "rope": {"theta": 1e4}})
    {'hidden_act': 'gelu', 'rope': '{"theta": 10000.0}'}
    """
    kept = {key: value for key, value in settings.items() if key not in WITHOUT_EFFECT and "dropout" not in key}
    return {
        key: value if value is None or isinstance(value, str | int | float) else json.dumps(value, default=str)
        for key, value in kept.items()
    }


def of_role(role: Role, parts: FingerprintParts) -> FingerprintParts:
    """Return parts with the role before each name."""
    return {f"{role}.{name}": value for name, value in parts.items()}


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Return eight hexadecimal digits that change with a tokenizer, but not with its truncation and padding.

    Truncation and padding are set for each batch. It takes 3 ms for 30,522 tokens.
    """
    with TOKENIZING:
        truncation, padding = tokenizer.truncation, tokenizer.padding
        tokenizer.no_truncation()
        tokenizer.no_padding()
        try:
            return f"{zlib.crc32(tokenizer.to_str().encode()):08x}"
        finally:
            if truncation is not None:
                tokenizer.enable_truncation(**truncation)
            if padding is not None:
                tokenizer.enable_padding(**padding)


def number_type(stored: FingerprintParts) -> str | None:
    """Return the number type of the digested weights in a stored fingerprint; None for a graph."""
    return str(stored.get("weights", "")).partition(":")[0] or None


def differences(stored: FingerprintParts, now: FingerprintParts) -> list[str]:
    """Return the differences from a stored fingerprint, such as "tokenizer" or "max_length: 512, now 256".

    A difference that both roles share is named once, without the role.

    >>> differences({"graph": "1f", "query.prompt": "Q: ", "runs": 1}, {"graph": "2e", "query.prompt": None, "new": 2})
    ['graph', 'query.prompt: "Q: ", now null']
    """
    changed = [name for name, value in stored.items() if name in now and now[name] != value]
    lines = {name: _line(name, stored, now) for name in changed}
    roles = get_args(Role)
    distinct = dict[str, None]()
    for name, line in lines.items():
        first, _, part = name.partition(".")
        # "query.max_length: ..." and "document.max_length: ..." become one line if they say the same.
        alike = {lines.get(f"{role}.{part}", "").partition(".")[2] for role in roles}
        distinct[line.partition(".")[2] if first in roles and len(alike) == 1 else line] = None
    return [*distinct]


def refuse_differences(stored: FingerprintParts, now: FingerprintParts, model: str, advice: str) -> None:
    """Raise `VectorsError` with all differences from a stored fingerprint, if there are any."""
    if changed := differences(stored, now):
        raise VectorsError(f"{model} has changed since it was made ({'; '.join(changed)}): {advice}")


def _line(name: str, stored: FingerprintParts, now: FingerprintParts) -> str:
    if name.rpartition(".")[2] in DIGESTS:
        return name
    stored_value, value = (json.dumps(parts[name], ensure_ascii=False) for parts in (stored, now))
    return f"{name}: {stored_value}, now {value}"


def digest(fingerprint: FingerprintParts) -> str:
    """Return 16 hexadecimal digits that change with any part of a fingerprint."""
    return blake2b(json.dumps(fingerprint, sort_keys=True).encode(), digest_size=8).hexdigest()
