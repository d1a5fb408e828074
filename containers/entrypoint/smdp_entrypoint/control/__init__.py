"""The control channel between the hosts of a job: one failure ends the job on all hosts, with its first cause."""
