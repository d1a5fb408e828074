"""Job files for tests: examples, generated, extreme, sound and wrong ones."""
