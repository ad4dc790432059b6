"""Wacky weights: measure expansion terms without meaning, and search without them (Mackenzie et al. 2021).

The idea: an expansion term has a score, which says how rarely the documents that it helps to find contain it. Curves,
ablations and explanations all go by this score.
"""
