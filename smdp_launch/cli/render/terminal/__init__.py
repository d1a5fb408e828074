"""Code with which all views write on a terminal."""
