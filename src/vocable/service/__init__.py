"""A service over one index: text in, hits, explanations and sparse vectors out, over HTTP."""

TOKEN = "VOCABLE_TOKEN"  # the variable of the environment that the service and its clients read
