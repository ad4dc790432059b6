"""Explanations of hits: terms, and marked parts of texts."""
