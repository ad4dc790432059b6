"""Calls that are repeated: an equal call has its result already, whatever the settings of the result need.

The settings of a result (`core.storage.finished`) may have a digest that only a loaded model gives, and to load it
takes PyTorch and seconds. The settings have a digest of the call, too. It covers all arguments and the content of all
files that they name, model files included, and it needs nothing but these files. A call with another digest may still
have the same settings: it compares them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from vocable.core.fingerprint import CALL_KEY, fingerprint
from vocable.core.storage import RESULT, StrPath, read_record, settings_file, target_of, write_record


def call_digest(arguments: Mapping[str, object]) -> str:
    """Return 16 hexadecimal digits of the arguments of a call, JSON values as from `settings_of`.

    >>> call_digest({"k": 1, "inputs": "3d"}) == call_digest({"inputs": "3d", "k": 1})
    True
    """
    return blake2b(json.dumps(arguments, sort_keys=True).encode(), digest_size=8).hexdigest()


def note_call(output: StrPath, call: str) -> None:
    """Write the digest of the call that made a finished output, or found it there, into its settings."""
    file = settings_file(target_of(output))
    settings = read_record(file, dict[str, Any])
    if settings.get(CALL_KEY) != call:
        write_record(file, {**settings, CALL_KEY: call})


def made_by(output: StrPath, call: str) -> bool:
    """Return whether an output is there, unchanged, that a call with this digest has made or found."""
    target = target_of(output)
    file = settings_file(target)
    if not (target.exists() and file.exists()):
        return False
    settings = read_record(file, dict[str, Any])
    return settings.get(CALL_KEY) == call and (target.is_dir() or settings.get(RESULT) == fingerprint(target))
