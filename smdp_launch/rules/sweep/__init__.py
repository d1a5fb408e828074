"""Rules about the section ``sweep``."""
