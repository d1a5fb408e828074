"""Processes that report numbers."""
