"""Distributions of logits, weights and postings.

The idea: what a model or an index costs, and why, is read from tokens and stored vectors, without a search.
"""
