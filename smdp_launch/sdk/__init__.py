"""Estimators and model trainers of the SageMaker Python SDK from a job file."""
