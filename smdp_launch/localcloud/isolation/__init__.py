"""What separates a simulated host from this machine: namespaces, containers and networks."""
