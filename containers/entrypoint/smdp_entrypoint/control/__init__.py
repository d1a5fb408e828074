"""The control channel between the hosts: a failure on one host ends the job on all hosts, with the first cause."""
