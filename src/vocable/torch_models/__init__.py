"""Models in PyTorch: the head without logits, pooling, opening of checkpoints, export.

The idea: a stock `SparseEncoder` whose head pools while it multiplies, so that the logits [b, s, v] of a batch never
exist.
"""
