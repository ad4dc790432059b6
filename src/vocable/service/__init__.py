"""A service for one index over HTTP: searches, explanations, sparse vectors and changes of documents."""

from vocable.options import ServiceLimits

TOKEN_VARIABLE = "VOCABLE_TOKEN"  # environment variable that the service and its clients read

DEFAULT_LIMITS: ServiceLimits = {
    "max_body": 2_000_000,
    "max_characters": 100_000,
    "max_inputs": 64,
    "max_k": 1000,
    "max_filter_depth": 16,
    "max_requests": 512,
    "max_queue": 1024,
    "batch_size": 32,
    "batch_wait": 2.0,
    "cache_size": 10_000,
    "timeout": 30,
}
