"""The training part of a recipe: what its keys may be, and what is refused, with which words."""

import pytest

from vocable.errors import RecipeError
from vocable.training.recipe import Recipe
from vocable.training.recipe_files import make_recipe


def training(**keys):
    data = {"examples": ["a"], "negatives": 1}
    return make_recipe({"model": "m", "data": data, "training": {"steps": 10, **keys}}).training


def test_the_default_loss_is_info_nce_with_flops():
    found = training()
    assert [loss.model_dump() for loss in found.losses] == [
        {"name": "info_nce", "weight": 1.0, "temperature": 1.0, "margin": 0.0, "cosine": False, "queue": None}
    ]
    sides = found.regularizers.query, found.regularizers.document
    assert [(side.name, side.weight, side.ramp, side.share) for side in sides] == [
        ("flops", 5e-5, "quadratic", 1 / 3),
        ("flops", 3e-5, "quadratic", 1 / 3),
    ]
    assert (found.regularizers.joint.weight, found.regularizers.overlap.weight, found.guard) == (0, 0, "stop")


def test_a_number_alone_is_a_weight():
    found = training(regularizers={"query": 0.1, "document": {"name": "l1", "weight": 2}, "joint": 5}).regularizers
    assert (found.query.name, found.query.weight) == ("flops", 0.1)
    assert (found.document.name, found.document.weight) == ("l1", 2)
    assert (found.joint.weight, found.joint.ramp) == (5, "quadratic")


def test_the_queue_is_that_of_the_in_batch_loss():
    queue = {"size": 9, "momentum": 0.5}
    found = training(losses=[{"name": "kl"}, {"name": "info_nce", "queue": queue}]).queue
    assert found.model_dump() == queue | {"terms": 1000}
    assert training(losses=[{"name": "kl"}]).queue is None


def test_yaml_reads_off_as_false():
    assert training(guard=False).guard == "off"


def test_what_was_written_down_is_read_again():
    losses = [{"name": "alignment", "kind": "kl"}, {"name": "margin_mse", "weight": 2}]
    values = {"losses": losses, "sparse_teacher": "s", "regularizers": {"joint": 5}, "max_terms": {"query": 3}}
    data = {"examples": ["a"], "negatives": 1}
    recipe = make_recipe({"model": "m", "data": data, "training": {"steps": 10, **values}})
    assert Recipe.model_validate_json(recipe.model_dump_json(exclude_none=True)) == recipe


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"micro_batch": 5}, "training: micro_batch 5 does not divide batch_size 32"),
        ({"losses": [{"name": "kl", "temp": 1}]}, "training.losses.0.temp: unknown key"),
        ({"losses": [{"name": "kl"}, {"name": "kl"}]}, "training: losses must have different names"),
        ({"losses": [{"name": "info_nce", "queue": {}}]}, "training.losses.0.queue.size: this key is missing"),
        (
            {"losses": [{"name": "info_nce", "queue": {"size": 9, "momentum": 1}}]},
            "training.losses.0.queue.momentum must be below 1",
        ),
        ({"losses": [{"name": "alignment"}]}, "training: the loss alignment needs sparse_teacher"),
        ({"sparse_teacher": "s"}, "training: sparse_teacher needs the loss alignment"),
        ({"teacher": {"models": []}}, "training.teacher: teacher needs models or lexical"),
        ({"teacher": {"lexical": True}}, "training.teacher teaches nothing: add kl or margin_mse"),
        ({"max_terms": {}}, "training.max_terms: max_terms needs query"),
        (
            {"regularizers": {"query": {"name": "l1", "threshold": 3}}},
            "training.regularizers.query.threshold: unknown key",
        ),
        ({"regularizers": {"query": {"k": 5}}}, "training.regularizers.query.k: unknown key"),
        ({"regularizers": {"document": -1}}, "training.regularizers.document must be at least 0, not -1"),
        ({"temperature": 1.0}, "training.temperature: unknown key"),
        ({"stepz": 1}, "training.stepz: unknown key; did you mean steps?"),
    ],
)
def test_settings_of_a_training_that_cannot_be_are_refused_in_one_line(keys, message):
    with pytest.raises(RecipeError) as error:
        training(**keys)
    assert str(error.value).startswith(f"recipe: {message}")
    assert "{" not in str(error.value)


def test_scores_come_from_a_teacher_or_with_negatives():
    values = {"model": "m", "data": {"examples": ["a"]}, "training": {"steps": 1, "losses": [{"name": "margin_mse"}]}}
    with pytest.raises(RecipeError):
        make_recipe(values)
