"""The engines, one module each: vectors that are searched (`Index`), and stores that hold documents too (`Store`)."""
