"""The platform's contract with a container: its files and variables, and the environment of the workers."""
