"""A collection as a retriever of other frameworks, and a model in other toolkits' evaluations: one module for each.

Each is imported by its own name, as `vocable.integrations.langchain`, and needs the extra of that name.
"""
