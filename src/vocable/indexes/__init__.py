"""Rankings of vectors and words: exact search, BM25, dense search, fusion."""
