"""Give an encoder without a masked-language-model head one that starts as close to the identity as it can."""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedModel

from vocable.encoder.load import check_weights
from vocable.errors import ModelError


def add_mlm_head(name: str) -> PreTrainedModel:
    """The encoder `name` with a new head: transform at identity, decoder tied to the input embeddings, bias zero.

    A random head would have to be learned before the encoder learns anything; with the identity the decoder compares
    the encoder's output with the embeddings from the first step on.

    Raises:
        ModelError: there is no masked-language-model class for this architecture, or the encoder lacks weights.
    """
    config = AutoConfig.from_pretrained(name)
    config.tie_word_embeddings = True
    try:
        mlm: PreTrainedModel = AutoModelForMaskedLM.from_config(config)
    except ValueError as error:
        raise ModelError(f"{name}: no masked-language-model head is known for {type(config).__name__}") from error
    encoder, loading = AutoModel.from_pretrained(name, output_loading_info=True)
    check_weights(name, encoder, loading["missing_keys"])
    mlm.base_model.load_state_dict(encoder.state_dict(), strict=False)  # the encoder's pooler has no place here
    encoder_modules = set(mlm.base_model.modules())
    decoder = mlm.get_output_embeddings()
    for module in mlm.modules():
        if isinstance(module, nn.Linear) and module is not decoder and module not in encoder_modules:
            _make_identity(module)
    if decoder.bias is not None:
        nn.init.zeros_(decoder.bias)
    mlm.tie_weights()
    return mlm


def _make_identity(linear: nn.Linear) -> None:
    with torch.no_grad():
        nn.init.eye_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
