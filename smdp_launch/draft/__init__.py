"""Draft a first job file from the folder of a training script."""
