"""`serve`: answers inference requests with a model, in the way that SageMaker's hosting requires."""
