"""Training: recipes, data, teachers, the training loop, and its guard."""
