"""Retrievers for other frameworks, and models for evaluation in other toolkits: a module for each.

Import a module by its name, such as `vocable.integrations.langchain`; it needs the extra with the same name.
"""
