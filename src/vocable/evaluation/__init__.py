"""Quality and cost of retrievers, side by side."""
