"""Source code as documents: the functions, methods, heads of classes and openings of its files."""
