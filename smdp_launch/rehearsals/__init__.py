"""Rehearsals: local runs with an injected fault, the verdict on each, and its report."""
