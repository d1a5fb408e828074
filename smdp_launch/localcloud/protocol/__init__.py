"""Code for the calls of all services: signatures, callers, bodies, encodings, and checks with the service's model."""
