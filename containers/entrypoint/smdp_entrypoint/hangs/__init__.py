"""Finds workers that make no progress, and shows what they do."""
