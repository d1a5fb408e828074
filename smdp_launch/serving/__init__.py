"""Endpoints: from the trained model of a job to its answers."""
