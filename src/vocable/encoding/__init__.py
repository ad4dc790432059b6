"""Texts as sparse vectors, without PyTorch: models and their runtimes, tokens, windows, stored vectors."""
