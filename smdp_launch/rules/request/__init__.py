"""Rules about the other fields of the request, and about the job file as a whole."""
