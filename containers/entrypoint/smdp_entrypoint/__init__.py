"""The container side of smdp-launch: reads SageMaker's training contract, assigns ranks, starts the workers."""

__version__ = "0.1.0"

__all__ = ["__version__"]
