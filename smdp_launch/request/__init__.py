"""A job as a CreateTrainingJob request, with hyperparameters and ranks; no I/O."""
