"""Models in PyTorch: the head without logits, pooling, opening of checkpoints, export."""
