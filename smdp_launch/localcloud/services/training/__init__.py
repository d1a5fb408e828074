"""The SageMaker service: the checks of CreateTrainingJob, the jobs, their descriptions and the search over them."""
