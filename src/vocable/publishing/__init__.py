"""A collection as static files that a browser searches: the format and its writer.

The idea: postings lie in many small files, in ranges of terms, and a browser reads the few that a query needs.
"""
