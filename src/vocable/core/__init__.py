"""Files, records, locks, tables, figures and progress bars, for all rooms."""
