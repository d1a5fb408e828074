"""The script of the job files beside this folder; it is packed and never run."""
