"""Rehearsals of an endpoint: they deploy an endpoint with a fault, call it continuously, and delete it."""
