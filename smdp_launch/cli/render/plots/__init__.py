"""Plots and pages: a rehearsal's timeline, the efficiency over hosts."""
