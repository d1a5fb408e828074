"""The SageMaker calls about tuning jobs."""
