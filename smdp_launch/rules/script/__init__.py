"""Rules about the training script and its source folder."""
