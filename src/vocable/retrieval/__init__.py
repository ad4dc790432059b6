"""Retrieval: collections and engines, rankings and their fusion, explanations, and the verbs that use them."""
