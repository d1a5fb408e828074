"""smdp-launch: one job file, checked, planned, run here, then trained on SageMaker."""

__version__ = "0.1.0"

__all__ = ["__version__"]
