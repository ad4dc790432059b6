"""Commands that are repeated: what their first call has made is shown without PyTorch, and without the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import vocable as vo
from vocable.cli.command import Outcome
from vocable.cli.verbs import fields, read_verb
from vocable.core.calls import call_digest, made_by, note_call
from vocable.core.fingerprint import fingerprint, settings_of
from vocable.encoding.hub import ADAPTERS, BUILT_IN, BUILT_IN_MODEL, locate


def verb_settings(
    name: str, given: Mapping[str, Any], others: Mapping[str, object] = {}, without: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return everything that decides the result of the verb `name`, as JSON values (`settings_of`)."""
    verb = read_verb(name)
    arguments = {name: parameter.default for name, parameter in verb.parameters.items()} | dict(given)
    for parameter in signature(verb.signature).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments.setdefault(parameter.name, {option: arguments[option] for option in fields(verb.record)})
    others = {name: value for name, value in others.items() if name != "device"}
    return settings_of(verb.signature, arguments, others, without=without)


def once(
    name: str,
    kept: Callable[[Mapping[str, Any]], object],
    run: Callable[..., Outcome] | None = None,
    models: Callable[[Mapping[str, Any]], Iterable[str]] = lambda given: [given["model"]],
) -> Callable[..., Outcome]:
    """Return a function that carries out a command, unless an equal call has: then it shows what is there.

    Args:
        name: the verb, whose settings have the digest of a model.
        kept: reads the result of the command with these arguments.
        run: carries out the command; by default the verb does.
        models: the names of the models among the arguments.
    """

    def command(**given: Any) -> Outcome:
        call = _call(name, given, models(given))
        if call is not None and made_by(given["output"], call):
            return Outcome(kept(given), repeated=True)
        outcome = run(**given) if run else Outcome(getattr(vo, name)(**given))
        if call is not None:
            note_call(given["output"], call)
        return outcome

    return command


def _call(name: str, given: Mapping[str, Any], models: Iterable[str]) -> str | None:
    """Return the digest of a call; None if its models are not only local files, and so may change unseen."""
    places = list[str]()
    for model in models:
        if model in BUILT_IN:
            places.append(locate(BUILT_IN_MODEL))  # where the other models of its name have some of their files
        place = locate(model)
        if not Path(place).is_dir() or any(Path(place, file).exists() for file in ADAPTERS):
            return None
        places.append(place)
    return call_digest(verb_settings(name, given, {**given.get("loading", {}), "model files": fingerprint(*places)}))
