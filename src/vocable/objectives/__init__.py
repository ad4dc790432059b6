"""Training objectives: pure functions on vectors and scores, one a file."""
