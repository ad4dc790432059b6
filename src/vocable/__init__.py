"""Learned sparse retrieval: adapt, train, encode, search, measure, explain."""
