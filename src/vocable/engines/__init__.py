"""The engines, one module each, and their common base.

The idea: a store ranks, filters and counts; what counts mean, IDF and BM25, is computed once, outside the engines. So
every engine gives the same scores.
"""
