"""Values that a run has measured, kept with what they depend on: no value is shown that is older than its inputs."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

import vocable
from vocable.core.fingerprint import changed
from vocable.core.storage import read_record, write_record
from vocable.errors import RecipeError

Measured: TypeAlias = dict[str, dict[str, Any]]  # by `Request.key`: values by name


@cache
def measuring_code() -> str:
    """Return a digest of the code that measures: the studies' own modules, and all of vocable."""
    hashed = blake2b(digest_size=16)
    package = Path(vocable.__file__).parent
    for path in sorted([*Path(__file__).parent.glob("*.py"), *package.rglob("*.py")]):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


@cache
def processor() -> str:
    """Return the name of the GPU, or else of the processor."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", info.read_text() if info.exists() else "", re.MULTILINE)
    return str(names[0]) if names else platform.processor() or platform.machine()


class Origin(NamedTuple):
    """What measured values depend on. Fingerprints are by place or by name; what is gone is not compared."""

    settings: str  # a digest of the recipe, or the name of the model
    dtype: str
    code: str
    recipe: dict[str, str]  # models, texts and examples that a recipe reads
    models: dict[str, str]  # the model that is measured, and that before calibration
    datasets: dict[str, str]  # documents, queries and judgments

    def differences(self, now: Origin) -> list[str]:
        """Return why no value counts."""
        reasons = {
            "the code that measures has changed": self.code != now.code,
            f"measured in {self.dtype}": self.dtype != now.dtype,
            "the model has changed": bool(changed(self.models, now.models)),
        }
        return [reason for reason, holds in reasons.items() if holds]


class Kept(NamedTuple):
    """The measured values of a run."""

    origin: Origin
    values: Measured
    processors: list[str]  # that measured them

    def stale_datasets(self, now: Origin) -> list[str]:
        """Return the changed datasets, and those on which a value depends on a changed one (`scored`)."""
        names = changed(self.origin.datasets, now.datasets)
        depend = (_dataset(key) for key in self.values if any(f'"scored": "{name}"' in key for name in names))
        return list(dict.fromkeys([*names, *depend]))

    def valid(self, now: Origin) -> Measured:
        """Return the values that count now."""
        stale = self.stale_datasets(now)
        if self.origin.differences(now):
            return {}
        return {key: values for key, values in self.values.items() if _dataset(key) not in stale}


def _dataset(key: str) -> str:
    """Return the dataset in a `Request.key`."""
    return [*key.split(" "), ""][1]


def read_kept(path: Path, now: Origin) -> Kept | None:
    """Read the values of a run; None if there are none.

    Raises:
        RecipeError: the values belong to another recipe, or the recipe has read other data.
    """
    if not path.exists():
        return None
    record = read_record(path, dict[str, Any], error=RecipeError)
    if "origin" not in record:  # of an earlier version
        return None
    kept = Kept(Origin(**record["origin"]), record["values"], record["processors"])
    advice = "use another output, or remove it"
    if kept.origin.settings != now.settings:
        raise RecipeError(f"{path}: measured with another recipe: {advice}")
    if places := changed(kept.origin.recipe, now.recipe):
        raise RecipeError(f"{path}: trained on data that have changed since then ({', '.join(places)}): {advice}")
    return kept


def write_kept(path: Path, values: Mapping[str, Mapping[str, Any]], now: Origin, earlier: Kept | None) -> None:
    """Write the values of a run, with the fingerprints of what is gone and of what other `earlier` values depend on."""
    processors = {processor()}
    if earlier is not None:
        then = earlier.origin
        now = now._replace(
            recipe={**then.recipe, **now.recipe},
            models={**then.models, **now.models},
            datasets={**then.datasets, **now.datasets},
        )
        processors.update(earlier.processors)
    write_record(path, {"origin": now._asdict(), "values": values, "processors": sorted(processors)})


def distinct(records: Iterable[Kept | None]) -> list[str]:
    """Return the number types and processors of all values, as "float32 on NVIDIA H200"."""
    pairs = {f"{kept.origin.dtype} on {name}" for kept in records if kept is not None for name in kept.processors}
    return sorted(pairs)
