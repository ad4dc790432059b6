"""Collections of documents: made, changed, searched."""
