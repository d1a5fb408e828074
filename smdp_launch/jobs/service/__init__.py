"""The way to a service: clients, retries, and the kinds of errors."""
