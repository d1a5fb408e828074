"""Reads a call of the SageMaker Python SDK in a script or notebook, and drafts a job file from it."""
