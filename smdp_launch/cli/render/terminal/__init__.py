"""What all views use to write on a terminal."""
