"""A service over one index: text in, hits, explanations and sparse vectors out, over HTTP."""
