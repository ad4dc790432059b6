"""The engines, one module each, and their common base."""
