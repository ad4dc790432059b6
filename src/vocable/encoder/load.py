"""Load models by name."""

from __future__ import annotations

from vocable.encoder.sparse_encoder import load_sparse_encoder as load

__all__ = ["load"]
