"""Retrievers for other frameworks, and models for the evaluations of other toolkits: a module for each.

A module is imported by its own name, as `vocable.integrations.langchain`, and needs the extra of that name.
"""
