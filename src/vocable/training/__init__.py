"""Training: recipes, data, teachers, the training loop, and its guard."""

from importlib.util import find_spec

from vocable.errors import MissingExtraError

if not (find_spec("accelerate") and find_spec("datasets")):
    raise MissingExtraError("training needs accelerate and datasets: pip install 'vocable[train]'")
