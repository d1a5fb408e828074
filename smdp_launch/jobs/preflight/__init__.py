"""Checks of the AWS account before anything is uploaded."""
