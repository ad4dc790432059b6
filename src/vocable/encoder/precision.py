"""Which number type to compute in."""

from __future__ import annotations

from typing import Literal

import torch

DType = Literal["auto", "float32", "bfloat16"]


def native_bfloat16(device: torch.device) -> bool:
    """Whether `device` multiplies bfloat16 matrices in hardware (AMX, AVX512-BF16, CUDA from 8.0)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
    return False


def in_bfloat16(dtype: DType, device: torch.device) -> bool:
    """Whether to compute in bfloat16: "auto" does where `device` has it natively."""
    return dtype == "bfloat16" or (dtype == "auto" and native_bfloat16(device))
