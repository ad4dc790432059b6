"""Texts as sparse vectors, without PyTorch: models and their runtimes, tokens, windows, stored vectors.

The idea: a model is what turns texts into rows of a sparse matrix, be it a graph, a table of token weights or a
`SparseEncoder`. What searches asks for no more.
"""
