"""Endpoints: deploy, call, list and delete the endpoint that serves the trained model of a job."""
