"""A job after its plan: submit, follow, resume, fetch the results."""
