"""The supervisor of an endpoint, and the hosts that serve its models."""
