"""Diagnostics in the formats of code review: one module for each format, and no printing."""
