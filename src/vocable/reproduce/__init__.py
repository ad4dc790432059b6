"""Published studies by one command: their runs, measurements and tables, in full size or on toys.

Called, `vocable.reproduce(...)`, it is the verb of `vocable.reproduce.reproduce`.
"""
