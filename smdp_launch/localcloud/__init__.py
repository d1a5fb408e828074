"""The local cloud: a server on loopback that speaks the AWS calls and really runs training jobs.

`client` is the door for the rest of the launcher and is cheap to import; everything else runs in processes of its own:
one server for a state directory, one supervisor for a job, one process tree for a simulated host.
"""
