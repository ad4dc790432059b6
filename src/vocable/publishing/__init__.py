"""A collection as static files that a browser searches: the format, its writer, and a reader."""
