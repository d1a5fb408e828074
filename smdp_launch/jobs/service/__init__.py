"""Access to the AWS services: clients, retries and kinds of errors."""
