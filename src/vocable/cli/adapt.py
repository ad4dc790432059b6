"""Commands that adapt a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import vocable as vo
from vocable.cli.command import Command, Outcome
from vocable.cli.inputs import texts_of
from vocable.cli.output import quoted
from vocable.cli.repeated import verb_settings
from vocable.cli.verbs import read_verb
from vocable.errors import ArgumentError, DataError
from vocable.options import Default
from vocable.training_options import PretrainOptions


def _opened(texts: list[str] | None) -> Iterator[str] | None:
    return texts_of(texts) if texts else None


def _adapt(
    name: str, given: dict[str, Any], following: str, texts: Callable[[Any], Iterable[str] | None] = _opened
) -> Outcome:
    """Adapt a model into the output folder, unless an equal call did; return the last step of its provenance.

    Args:
        name: the verb.
        given: the arguments of the command, of which the verb takes all but model, output, texts and loading.
        following: a command that may follow.
        texts: opens the texts for the verb; it is not called if the model already exists.
    """
    from vocable.core.storage import finished, refuse_taken

    output, loading = given["output"], given["loading"]
    made_from = verb_settings(name, given, loading)
    if finished(output, made_from):  # without PyTorch
        return _already_there(output, following)
    refuse_taken(output)
    from vocable.torch_models.sparse_encoder import save_model

    opened = texts(given.get("texts"))
    others = {key: value for key, value in given.items() if key not in ("model", "output", "loading", "texts")}
    adapted = getattr(vo, name)(vo.load(given["model"], **loading), texts=opened, **others)
    save_model(adapted, output, made_from)
    return Outcome(vo.provenance(adapted)[-1], following)


def _already_there(output: Path, following: str) -> Outcome:
    """Return the last step that made a finished model, which is not loaded."""
    from vocable.torch_models.provenance import last_step

    return Outcome(last_step(output), following)


def _rescale(**given: Any) -> Outcome:
    def probe(texts: str | None) -> list[str] | None:
        from vocable.adapt.statistics import probe_texts

        return probe_texts(texts or "pydocs:") if given["factor"] == "auto" else None

    return _adapt("rescale", given, f"vocable inspect {quoted(given['output'])}", probe)


class _Transferred(NamedTuple):
    """The step of a transfer, with the source tokens of the requested new tokens."""

    step: Any
    neighbours: Sequence[Any]

    def __str__(self) -> str:
        return "\n".join(map(str, [self.step, *self.neighbours]))

    def to_json(self) -> dict[str, object]:
        return {**self.step.to_json(), "neighbours": [sources._asdict() for sources in self.neighbours]}


def _transfer(neighbours: Sequence[str] = (), **given: Any) -> Outcome:
    output = quoted(given["output"])
    following = f"vocable pretrain {output} TEXTS -o DIR --steps 500 --masking overlap-aware"
    if given.get("head_only"):  # nothing needs pre-training
        following = f"vocable calibrate {output} TEXTS -o DIR --activation-rate 0.05"
    outcome = _adapt("transfer", given, following)
    if not neighbours:
        return outcome
    from vocable.adapt import transfer as transferring

    initialization = {"init": given["init"]} if "init" in given else {}
    model = vo.load(given["model"], **given["loading"])
    sources = transferring.neighbours(model, given["target"], neighbours, **initialization)
    return outcome._replace(result=_Transferred(outcome.result, sources))


def _expand_vocabulary(**given: Any) -> Outcome:
    if ("texts" in given) == ("words" in given):
        raise ArgumentError("give either --texts, for their most frequent words, or --words, a file of words")
    if "words" in given and ("size" in given or "min_count" in given):
        raise ArgumentError("--size and --min-count go with --texts: all words of a file are taken")
    if (given.get("init") == "semantic") != ("target" in given):
        raise ArgumentError("--init semantic and --target go together")
    following = f"vocable pretrain {quoted(given['output'])} TEXTS -o DIR --steps 500 --masking whole-word"
    return _adapt("expand_vocabulary", given, following)


def _train_vocabulary(texts: list[str], **given: Any) -> Outcome:
    output = given.get("output")
    following = "" if output is None else f"vocable transfer MODEL --target {quoted(output)} --init subtoken -o DIR"
    return Outcome(vo.train_vocabulary(texts_of(texts), **given), following)


def _pretrain(
    model: str, texts: list[str], output: Path, steps: int, *, loading: dict[str, Any], seed: int = 0, **settings: Any
) -> Outcome:
    from vocable.adapt.stages import check_pretrain_settings
    from vocable.core.storage import finished
    from vocable.data import read_examples

    complete = check_pretrain_settings(steps, cast(PretrainOptions, settings)).model_dump(mode="json")
    del complete["texts"], complete["teacher"]  # stay as they are given, since their content counts
    arguments = {"model": model, "texts": texts, "settings": {"teacher": settings.get("teacher")}}
    made_from = verb_settings("pretrain", arguments, {**loading, **complete, "seed": seed}, without=("work",))
    following = f"vocable calibrate {quoted(output)} TEXTS -o DIR --activation-rate 0.05"
    if finished(output, made_from):  # without PyTorch
        return _already_there(output, following)
    from vocable.training.pretraining.pretrain import pretrain_folder

    opened: Iterable[Any] = chain.from_iterable(map(read_examples, texts)) if complete["labels"] else texts_of(texts)
    adapted = pretrain_folder(
        output, made_from, lambda: vo.load(model, **loading), opened, steps=steps, seed=seed, **settings
    )
    return Outcome(vo.provenance(adapted)[-1], following)


def _calibrate(**given: Any) -> Outcome:
    if ("activation_rate" in given) == ("shift" in given):
        raise ArgumentError("give either --activation-rate or --shift")

    def probe(texts: list[str]) -> list[str]:
        count = given.get("count", read_verb("calibrate").parameters["count"].default)
        probes = list(islice((text for text in texts_of(texts) if text.strip()), count))
        if not probes:
            raise DataError("no text to probe with", source=" ".join(texts))
        return probes

    return _adapt("calibrate", given, f"vocable inspect {quoted(given['output'])}", probe)


def _make_inference_free(**given: Any) -> Outcome:
    def opened(texts: list[str] | None) -> Iterator[str] | None:
        if given.get("weights") == "mean" and texts:
            return (example.query for source in texts for example in vo.read_examples(source))
        return _opened(texts)

    output = quoted(given["output"])
    following = f"vocable evaluate {output} --dataset SOURCE, or a recipe with model: {output}"
    return _adapt("make_inference_free", given, following, opened)


PROBE = {"texts": (Annotated[str, Default("pydocs:")], "Probe texts, best from your own corpus.")}


def _merge(models: list[str], output: Path, base: str | None = None, **given: Any) -> Outcome:
    from vocable.core.storage import finished

    made_from = verb_settings("merge", {"models": models, "base": base, **given})
    following = f"vocable evaluate {quoted(output)} --dataset SOURCE"
    if finished(output, made_from):  # without PyTorch
        return _already_there(output, following)
    from vocable.torch_models.sparse_encoder import save_model

    merged = vo.merge([vo.load(name) for name in models], base=None if base is None else vo.load(base), **given)
    save_model(merged, output, made_from)
    return Outcome(vo.provenance(merged)[-1], following)


def _convert(**given: Any) -> Outcome:
    return Outcome(vo.convert(**given), f"vocable inspect {quoted(given['output'])}")


ADAPTATION_COMMANDS = (
    Command("convert", "model", "naver/splade_v2_max -o splade_v2_max", _convert, "writes"),
    Command(
        "inspect",
        "model",
        "bert-base-cased --target bert-base-uncased",
        traits="named",
        options=PROBE,
        without="tokenizer",
    ),
    Command(
        "rescale",
        "model",
        "answerdotai/ModernBERT-base -o out --factor auto",
        _rescale,
        "loads reads",
        options=PROBE,
        sources="texts",
    ),
    Command(
        "transfer",
        "model",
        "MODEL --target bert-base-uncased -o out",
        _transfer,
        "loads reads",
        options={
            "neighbours": (Sequence[str], "Show the tokens that a new token was made of."),
        },
        sources="texts",
    ),
    Command(
        "expand-vocabulary",
        "model",
        "vocable-mini --texts texts.txt -o out",
        _expand_vocabulary,
        "loads reads",
        sources="texts",
    ),
    Command("train-vocabulary", "texts...", "texts.txt -o vocabulary --size 20000", _train_vocabulary, "reads"),
    Command(
        "pretrain",
        "model texts...",
        "bert-base-uncased texts.txt -o out --steps 1000",
        _pretrain,
        "loads reads resumes",
        without="work",
        sources="texts",
    ),
    Command(
        "calibrate",
        "model texts...",
        "adapted texts.txt -o out --activation-rate 0.05",
        _calibrate,
        "loads reads",
        sources="texts",
    ),
    Command(
        "merge",
        "models...",
        "my-model vocable-mini -o merged --weights 0.7,0.3",
        _merge,
        "named writes",
        options={
            "models": (Sequence[str], "Models of one shape: folders or Hub ids."),
            "base": (str, "The model that all were trained from."),
        },
    ),
    Command(
        "make-inference-free",
        "model",
        "vocable-mini --texts pydocs: -o out",
        _make_inference_free,
        "loads reads",
        sources="texts",
    ),
)
