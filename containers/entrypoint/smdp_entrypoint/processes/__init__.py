"""Processes of this host: started, watched, their output and their failures."""
