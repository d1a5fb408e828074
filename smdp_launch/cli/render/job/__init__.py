"""A job and its run, for a person and for a program."""
