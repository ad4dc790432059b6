"""Rankings of vectors and words: exact search, BM25, dense search, fusion.

The idea: scores are exact, the same to the last bit on every path: one thread or many, compiled or in NumPy, in one
part or several.
"""
