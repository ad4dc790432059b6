"""Quality and cost of retrievers, side by side."""

from vocable.evaluation.compare import Comparison, compare, paired_t_test
from vocable.evaluation.cost import Cost, activation_rates, active_terms, flops, search_latency
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import Evaluation, evaluate_run, evaluate_system, parse_measures
from vocable.evaluation.retrieval import Retrieval, retrieve

__all__ = [
    "Comparison",
    "Cost",
    "Dataset",
    "Evaluation",
    "Retrieval",
    "activation_rates",
    "active_terms",
    "compare",
    "evaluate_run",
    "evaluate_system",
    "flops",
    "load_dataset",
    "paired_t_test",
    "parse_measures",
    "retrieve",
    "search_latency",
]
