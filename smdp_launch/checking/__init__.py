"""Runs the rules on a job: collects the facts, merges the configuration sources, hides secrets."""
