"""Wacky weights: measure expansion terms without meaning, and search without them (Mackenzie et al. 2021)."""
