"""Rehearsals: local runs with an injected fault, their verdicts and reports."""
