"""The platform's contract with a container: what it provides, and what workers get from it."""
