"""Training: recipes, data, teachers, the training loop, and its guard.

The idea: a recipe is the whole training. The same recipe gives the same weights, however often it was interrupted.
"""
