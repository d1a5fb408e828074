"""Training images: build, push and inspect."""
