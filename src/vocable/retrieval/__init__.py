"""Search an index: the protocol and its engines, rankings and their fusion, explanations, collections on disk.

Called, the package is the verb `vocable.retrieval.answers.search`.
"""
