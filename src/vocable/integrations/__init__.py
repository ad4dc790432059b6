"""Retrievers for other frameworks, and models for evaluation in other toolkits: a module for each.

The idea: a framework's class holds a collection and passes its calls on; it computes nothing by itself. Import a module
by its name, such as `vocable.integrations.langchain`; it needs the extra with the same name.
"""
