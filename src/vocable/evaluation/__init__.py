"""Quality and cost of retrievers, side by side.

The idea: what is measured is the search that users get. Values are stored a query each, so that any two systems can be
tested against each other later.
"""
