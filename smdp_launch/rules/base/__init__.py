"""What rules are made of: the facts of a job, and how a rule is written."""
