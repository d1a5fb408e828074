"""`serve`: answers inference requests with a model, as SageMaker's hosting expects of a container."""
