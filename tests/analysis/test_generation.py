from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.analysis.conftest import POSITIONS
from vocable.errors import ArgumentError, ModelError
from vocable.evaluation.expanders import Generator, Task, generate, load_generator

PROMPTS = ["The old fox reads books", "A librarian", "Every compiler forgets twelve queries at night . See chapter 7"]


def reference(generator: Generator, prompt: str, new_tokens: int) -> str:
    """Greedy decoding by hand, one forward pass a token, without a cache."""
    model, tokenizer = generator
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    written = [model.config.decoder_start_token_id] if model.config.is_encoder_decoder else []
    for _ in range(new_tokens):
        with torch.inference_mode():
            if model.config.is_encoder_decoder:
                logits = model(input_ids=ids, decoder_input_ids=torch.tensor([written])).logits
            else:
                logits = model(input_ids=torch.cat([ids, torch.tensor([written], dtype=torch.int64)], dim=1)).logits
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == tokenizer.eos_token_id:
            break
    return str(tokenizer.decode(written, skip_special_tokens=True)).strip()


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_only_the_likeliest_token_is_greedy_decoding(kind: Task, request: pytest.FixtureRequest) -> None:
    # Prompts of several lengths in one batch: padding must not change what is written.
    generator = load_generator(request.getfixturevalue(kind), kind)
    written = generate(generator, PROMPTS, new_tokens=12, samples=2, top_k=1)
    expected = [reference(generator, prompt, 12) for prompt in PROMPTS]
    assert written == [[text, text] for text in expected]
    assert len(set(expected)) == 3  # the prompts matter


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_the_seed_decides(kind: Task, request: pytest.FixtureRequest) -> None:
    generator = load_generator(request.getfixturevalue(kind), kind)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, again, other = (generate(generator, PROMPTS, new_tokens=8, samples=3, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert torch.rand(1) == expected  # the caller's random numbers are where they were
    assert [len(set(texts)) for texts in one] == [3, 3, 3]


def test_many_prompts_are_written_in_batches(causal: Path) -> None:
    generator = load_generator(causal, "causal")
    prompts = [" ".join(["fox"] * (1 + i % 7)) for i in range(9)]
    written = generate(generator, prompts, new_tokens=3, samples=20, top_k=1)
    assert [texts[0] for texts in written] == [reference(generator, prompt, 3) for prompt in prompts]


def test_sampled_as_often_as_the_model_says(causal: Path) -> None:
    generator = load_generator(causal, "causal")
    model, tokenizer = generator
    with torch.inference_mode():
        logits = model(**tokenizer(PROMPTS[1], return_tensors="pt")).logits[0, -1]
    likeliest = logits.topk(4).indices
    shares = logits[likeliest].softmax(0)
    [texts] = generate(generator, PROMPTS[1:2], new_tokens=1, samples=4000, top_k=4)
    names = [str(tokenizer.decode([token], skip_special_tokens=True)).strip() for token in likeliest.tolist()]
    assert set(texts) <= set(names)
    for name, share in zip(names, shares.tolist(), strict=True):
        assert texts.count(name) / 4000 == pytest.approx(share, abs=0.04)  # five standard deviations


def test_long_prompts_are_cut_where_that_is_asked_for(seq2seq: Path) -> None:
    generator = load_generator(seq2seq, "seq2seq")
    whole, cut = (
        generate(generator, [prompt], new_tokens=8, top_k=1, max_length=4) for prompt in (PROMPTS[0], "The old fox")
    )
    assert whole == cut  # three words and the end
    assert whole != generate(generator, PROMPTS[:1], new_tokens=8, top_k=1)


def test_nothing_to_write(causal: Path) -> None:
    assert generate(load_generator(causal, "causal"), [], new_tokens=5) == []


def test_what_does_not_fit_is_refused(causal: Path, seq2seq: Path) -> None:
    generator, long = load_generator(causal, "causal"), " ".join(["fox"] * 100)
    [[text]] = generate(generator, [long], new_tokens=POSITIONS - 100, top_k=1)
    assert text
    message = "the longest prompt has 100 tokens and 61 are to be written: more than the model's 160 positions"
    with pytest.raises(ArgumentError, match=message):
        generate(generator, [long], new_tokens=POSITIONS - 99)
    # T5 counts relative positions: there is no end of them.
    assert generate(load_generator(seq2seq, "seq2seq"), [long], new_tokens=29, top_k=1)
    for new_tokens, samples, top_k in ((0, 1, 0), (1, 0, 0), (1, 1, -1)):
        with pytest.raises(ArgumentError, match=f"must be at least 1 .*, not {new_tokens}, {samples} and {top_k}"):
            generate(generator, PROMPTS, new_tokens=new_tokens, samples=samples, top_k=top_k)


def test_another_kind_of_model_is_refused(causal: Path, seq2seq: Path, backbones: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match=r"is no seq2seq language model \(its configuration names GPT2LMHeadModel\)"):
        load_generator(causal, "seq2seq")
    with pytest.raises(ModelError, match=r"is no causal language model .*T5ForConditionalGeneration"):
        load_generator(seq2seq, "causal")
    with pytest.raises(ModelError, match=r"is no causal language model .*BertForMaskedLM"):
        load_generator(backbones["bert"], "causal")
    with pytest.raises(ModelError, match="no such model folder"):
        load_generator("/no/such/folder", "causal")


def test_a_model_without_all_of_its_weights_is_refused(causal: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(causal, tmp_path / "gpt2")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: weights[name] for name in weights if "h.1.mlp" not in name},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ModelError, match=r"weights are missing: transformer\.h\.1\.mlp"):
        load_generator(folder, "causal")


def test_pickled_weights_are_refused(causal: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(causal, tmp_path / "gpt2")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="from safetensors only"):
        load_generator(folder, "causal")
