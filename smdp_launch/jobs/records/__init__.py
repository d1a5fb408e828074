"""Records of the jobs that were launched from a folder: their outcomes, and the local clouds that ran them."""
