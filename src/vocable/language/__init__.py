"""Words of languages: splitting, stemming, suggestions, coverage by a vocabulary.

The idea: a word is the same in documents, queries, Python and on a published page.
"""
