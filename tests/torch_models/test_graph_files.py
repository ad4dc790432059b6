from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from vocable.errors import ModelError
from vocable.torch_models.graph_files import graph_inputs, write_graph

pytest.importorskip("onnxscript", reason="pip install 'vocable[train]'")


class FirstStates(nn.Module):
    """Token ids [b, s] -> the state of each text's first token [b, d]."""

    def __init__(self, encoder: Any, *, broken: bool = False) -> None:
        super().__init__()
        self.encoder, self.broken = encoder, broken

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, 0]
        if self.broken and states.sum().item() > 0:  # depends on values, which a graph does not know
            states = states.new_tensor(states.tolist())
        return states


@pytest.mark.parametrize("for_int8", [False, True])
def test_a_graph_computes_its_module_for_inputs_of_any_size(
    backbones: dict[str, Path], tmp_path: Path, for_int8: bool
) -> None:
    transformer = Transformer(str(backbones["bert"]))
    inputs = graph_inputs(transformer, ["two texts", "the second is longer"])
    module = FirstStates(transformer.auto_model.eval())
    write_graph(module, transformer.auto_model, inputs, ["first"], tmp_path / "model.onnx", for_int8=for_int8)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    read = {graph_input.name for graph_input in session.get_inputs()}
    for texts in (["fox"], ["a quick brown fox", "snow", "rain and hail"]):
        given = graph_inputs(transformer, texts)
        with torch.no_grad():
            wanted = module(**{name: torch.from_numpy(values) for name, values in given.items()})
        [states] = session.run(["first"], {name: values for name, values in given.items() if name in read})
        np.testing.assert_allclose(states, wanted.numpy(), atol=1e-5)


def test_a_module_without_a_graph_is_one_line(backbones: dict[str, Path], tmp_path: Path) -> None:
    transformer = Transformer(str(backbones["bert"]))
    inputs, encoder = graph_inputs(transformer, ["two texts", "fox"]), transformer.auto_model.eval()
    with pytest.raises(ModelError) as raised:
        write_graph(
            FirstStates(encoder, broken=True), encoder, inputs, ["first"], tmp_path / "model.onnx", for_int8=False
        )
    assert "\n" not in str(raised.value)
