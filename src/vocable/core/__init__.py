"""Files, records, locks, tables, figures and progress bars, for all rooms.

The idea: a file is whole or absent, and work that was interrupted resumes. A room that writes files does it by this
one.
"""
