"""Explanations of hits: terms, and marked parts of texts.

The idea: a sparse score is a sum over terms. An explanation is that sum, and its terms add up to the score.
"""
