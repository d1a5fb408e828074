"""One module for each AWS service, and the state that only this module reads."""
