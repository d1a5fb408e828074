"""One module for each command. A command's module is imported when that command runs."""
