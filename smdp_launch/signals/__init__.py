"""What a signal does in this process: Ctrl-C as an exception, and a flag that a handler may set."""
