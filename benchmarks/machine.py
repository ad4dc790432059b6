"""What the benchmarks share: what machine this is, how long something takes, how much memory it needs on top."""

from __future__ import annotations

import os
import platform
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vocable.torch_models.cpu import native_bfloat16

PROC = Path("/proc/self")
NOT_NATIVE = "bfloat16: not native here, not measured"


def machine(device: torch.device, *libraries: str) -> dict[str, Any]:
    """The processor (or GPU), its cores, how busy it was already, and the versions of what is measured."""
    info = Path("/proc/cpuinfo")
    first = info.read_text().split("\n\n")[0] if info.exists() else ""
    facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.+)$", first, re.MULTILINE))
    # A virtual machine often hides the name; family and model tell the generation.
    name, generation = facts.get("model name") or platform.processor(), ", family {cpu family}, model {model}"
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": name + (generation.format_map(facts) if len(facts) == 3 else ""),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load before": round(os.getloadavg()[0], 1),
        "native bfloat16": native_bfloat16(device),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "sentence-transformers", *libraries)},
    }


def busy_share(seconds: float = 2.0) -> float:
    """Return the share of all cores in use during the next seconds; 0 if the system does not tell.

    While this process waits, other processes use this share. The load average remembers ended processes for too long.
    """
    start = _cpu_times()
    time.sleep(seconds)
    passed = [now - then for now, then in zip(_cpu_times(), start, strict=True)]
    return 1 - sum(passed[3:5]) / sum(passed) if sum(passed) else 0.0  # idle and waiting for a disk


def _cpu_times() -> list[int]:
    stat = Path("/proc/stat")
    return [int(word) for word in stat.read_text().split("\n")[0].split()[1:]] if stat.exists() else []


def medians(sides: Mapping[str, Callable[[], object]], repeats: int, device: torch.device) -> dict[str, float]:
    """Median seconds of each side, run in turn so that all meet the same machine; the first round only warms up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, run in sides.items():
            _wait(device)
            start = time.perf_counter()
            run()
            _wait(device)
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_memory(run: Callable[[], object], device: torch.device) -> float | None:
    """MiB needed while `run` runs, above what is held before it; None where the system does not tell.

    On a processor it is the resident set's high-water mark, which Linux lets a process reset.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - held) / 2**20
    if not (PROC / "clear_refs").exists():
        return None
    (PROC / "clear_refs").write_text("5")
    held = _status("VmRSS")
    run()
    return (_status("VmHWM") - held) / 2**10


def limit_memory(mebibytes: int) -> None:
    """Let this process ask for so much more memory than it has now: beyond that, asking is an error."""
    most = _status("VmSize") * 2**10 + mebibytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def print_machine(described: Mapping[str, Any]) -> None:
    print("   ".join(f"{name}: {value}" for name, value in described.items()))


def ratio(other: float | None, ours: float | None) -> float | None:
    """Return the peer's figure divided by ours; None if a figure is missing."""
    return other / ours if other is not None and ours else None


def figure(value: float | None, form: str) -> str:
    """A number for a table, or a dash."""
    return "-" if value is None else format(value, form)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _status(field: str) -> int:
    """A field of /proc/self/status, kB."""
    lines = (PROC / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
