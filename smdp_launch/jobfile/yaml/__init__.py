"""YAML text to plain values with their places, and edits of the text."""
