"""Tuning jobs: the values of their trials, and the supervisor that starts them."""
