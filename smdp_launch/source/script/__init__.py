"""Facts about a training script, read from its syntax tree."""
