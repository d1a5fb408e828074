"""Rules about the rest of the request, and about the job file as a whole."""
