from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer, CLIPTextConfig, CLIPTextModel, PreTrainedModel

from vocable.encoding.load import load
from vocable.errors import ModelError
from vocable.torch_models.fuse import parts
from vocable.torch_models.output_vocabulary import NEVER


@pytest.fixture
def encoder_folder(backbone: Path, tmp_path: Path) -> Path:
    """Each architecture's encoder without its head, as an embedding model is stored."""
    AutoModel.from_pretrained(backbone).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(backbone).save_pretrained(tmp_path)
    return tmp_path


def with_new_head(folder: Path) -> PreTrainedModel:
    return parts(load(folder, new_head=True, device="cpu")).mlm


def test_the_encoder_is_unchanged(encoder_folder: Path) -> None:
    encoder = AutoModel.from_pretrained(encoder_folder).eval()
    mlm = with_new_head(encoder_folder).eval()
    weights = encoder.state_dict()
    found = mlm.base_model.state_dict()
    assert len(found) > 5
    assert all(torch.equal(value, weights[name]) for name, value in found.items())
    ids = torch.tensor([[2, 9, 11, 3]])
    assert torch.equal(mlm.base_model(input_ids=ids)[0], encoder(input_ids=ids)[0])


def test_the_decoder_is_tied_and_its_bias_zero(encoder_folder: Path) -> None:
    mlm = with_new_head(encoder_folder)
    decoder = mlm.get_output_embeddings()
    assert decoder.weight is mlm.get_input_embeddings().weight
    assert set(decoder.bias.tolist()) == {0, NEVER}  # that of special tokens
    assert (decoder.bias == 0).sum() == len(AutoTokenizer.from_pretrained(encoder_folder)) - 5


@pytest.mark.slow
def test_the_transform_starts_at_the_identity(encoder_folder: Path) -> None:
    mlm = with_new_head(encoder_folder)
    inside = {id(module) for module in mlm.base_model.modules()} | {id(mlm.get_output_embeddings())}
    transforms = [m for m in mlm.modules() if isinstance(m, nn.Linear) and id(m) not in inside]
    assert len(transforms) == 1
    transform = transforms[0]
    # Where the embeddings are narrower than the encoder (ALBERT, ELECTRA), the identity keeps the first dimensions.
    x = torch.randn(3, transform.in_features, generator=torch.Generator().manual_seed(0))
    assert torch.equal(transform(x), x[:, : transform.out_features])


def test_an_architecture_without_a_masked_language_model_is_refused(tmp_path: Path) -> None:
    config = CLIPTextConfig(
        vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    CLIPTextModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        with_new_head(tmp_path)
