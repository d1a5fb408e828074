"""Finds workers that make no progress, and shows their stacks."""
