"""Notifications at the end of a job or at a problem: content and receivers, each notification sent once."""
