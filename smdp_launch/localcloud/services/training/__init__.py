"""The SageMaker service: what CreateTrainingJob refuses, the jobs, and how they are described and searched."""
