"""What a training script says about itself, read from its syntax tree."""
