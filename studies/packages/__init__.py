"""A corpus of passages, and pairs to train on, from the packages of a Debian distribution."""
