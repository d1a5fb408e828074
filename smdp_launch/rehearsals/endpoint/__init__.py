"""Rehearsals of an endpoint: it is deployed with a fault, called all the time, and deleted again."""
