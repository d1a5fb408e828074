"""Notifications at the end of a job, or if it is in trouble: what is sent, where to, and once."""
