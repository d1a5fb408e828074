"""Find, start and end a local cloud. The rest of the launcher imports nothing else of the local cloud."""
