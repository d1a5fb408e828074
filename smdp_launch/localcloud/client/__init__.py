"""The only door of the local cloud for the rest of the launcher: it finds and starts a local cloud."""
