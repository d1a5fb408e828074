"""The syntax tree of a Python file: full names of calls, scopes and places."""
