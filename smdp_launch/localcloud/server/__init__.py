"""The server process: connections, the gateway that checks every call, and the table of services."""
