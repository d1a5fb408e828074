"""What the calls of all services share: signatures, callers, bodies, encodings, and checks by the service's model."""
