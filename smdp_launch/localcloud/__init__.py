"""The local cloud: a server on loopback that answers AWS calls and really runs training jobs.

The rest of the launcher imports only `client`, which is cheap to import. Everything else runs in processes of its own:
one server for a state folder, one supervisor for a job, one process tree for a simulated host.
"""
