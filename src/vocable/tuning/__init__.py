"""A model for somebody's own documents, and its exam.

The idea: questions made of the documents take the place of judgments, to train on some and to measure with others.
"""
