"""Job files to try: examples, generated, strange and wrong ones."""
