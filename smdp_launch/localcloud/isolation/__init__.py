"""Namespaces, containers and networks that separate a simulated host from this machine."""
