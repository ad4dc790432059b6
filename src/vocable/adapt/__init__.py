"""Stages that adapt a model before its retrieval training.

The idea: a stage takes a model and returns a new one, with a record of what was done and measured. `inspect` looks at a
model and names the stages that it needs.
"""
