"""The processes of this host: start, supervision, output and failures."""
