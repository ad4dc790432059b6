"""Collections of documents: made, changed, searched.

The idea: a search is a plan, carried out on one commit. The plan says which kinds of rankings are made, with which
weights and how deep; evaluation, the service and all integrations carry out the same plan.
"""
