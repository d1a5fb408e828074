"""A first job file, from the folder that holds a training script."""
