"""A collection as static files that a browser searches: the format and its writer."""
