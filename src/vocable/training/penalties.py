"""The regularizers of a recipe on the vectors of a batch, each with its ramp.

Letters: b queries, n documents, v terms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vocable.encoder.routes import Role
from vocable.objectives.df_flops import df_weights
from vocable.objectives.flops import flops
from vocable.objectives.joint_flops import joint_flops
from vocable.objectives.l1 import l1
from vocable.objectives.overlap import overlap_distance
from vocable.objectives.ramp import ramp
from vocable.training.document_frequencies import DocumentFrequencies
from vocable.training.settings import Joint, Regularizer, Regularizers


class Penalties(nn.Module):
    """What sparsity costs: L1 or FLOPS of each side, the latter weighted or not, joint FLOPS of both, and overlap.

    Args:
        settings: of queries, documents and both; a weight of 0 takes one away.
        steps: of the whole training, which the ramps are a share of.
        v: terms of a vector.
        idf: [v], for `idf_flops`.
    """

    idf: Tensor | None

    def __init__(self, settings: Regularizers, steps: int, v: int, *, idf: Tensor | None = None) -> None:
        super().__init__()
        self._settings, self._steps = settings, steps
        self.register_buffer("idf", idf, persistent=False)
        self.frequencies = DocumentFrequencies(v) if "df_flops" in settings.names else None
        for side in settings.measured:
            self.register_buffer(f"{side}_wackiness", torch.zeros(v))

    def forward(self, queries: Tensor, documents: Tensor, step: int, *, learn: bool) -> dict[str, Tensor]:
        """The penalties of queries [b, v] and documents [n, v] in a step, counted from 0, times their weights.

        Args:
            learn: whether these are documents that the model learns from, which count for DF-FLOPS.
        """
        if self.frequencies is not None and learn:
            self.frequencies.count(documents, step)
        settings, found = self._settings, {}
        if settings.query.weight:
            found["query_regularizer_loss"] = self._one_side("query", queries, step)
        if settings.document.weight:
            found["document_regularizer_loss"] = self._one_side("document", documents, step)
        if settings.joint.weight:
            weight = self._weight(settings.joint, step)
            found["joint_regularizer_loss"] = weight * joint_flops(queries, documents)
        if settings.overlap.weight:
            weight = self._weight(settings.overlap, step)
            found["overlap_regularizer_loss"] = weight * overlap_distance(queries, documents[: len(queries)])
        return found

    def wackiness(self, side: Role) -> Tensor:
        """The wackiness of each term [v] as an expansion of one side's texts, 0 until `MeasureWackiness` writes it."""
        return self.get_buffer(f"{side}_wackiness")

    def weights(self, step: int) -> dict[str, float]:
        """The weights of a step."""
        settings = self._settings
        parts: dict[str, Joint] = {name: getattr(settings, name) for name in type(settings).model_fields}
        return {f"{name}_regularizer_weight": self._weight(part, step) for name, part in parts.items() if part.weight}

    def _weight(self, part: Joint, step: int) -> float:
        return part.weight * ramp(step, self._steps, shape=part.ramp, share=part.share)

    def _one_side(self, side: Role, vectors: Tensor, step: int) -> Tensor:
        part: Regularizer = getattr(self._settings, side)
        if part.name == "l1":
            return self._weight(part, step) * l1(vectors)
        penalty = flops(vectors, threshold=part.threshold, term_weights=self._term_weights(side, part.name))
        return self._weight(part, step) * penalty

    def _term_weights(self, side: Role, name: str) -> Tensor | None:
        """What FLOPS of one side multiplies the terms' weights by, [v]."""
        if name == "idf_flops":
            return self.idf
        if name == "wackiness_flops":
            return self.wackiness(side)
        return df_weights(self.frequencies.shares()) if self.frequencies is not None and name == "df_flops" else None

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep, as JSON values."""
        return {name: buffer.tolist() for name, buffer in self.state_dict().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
