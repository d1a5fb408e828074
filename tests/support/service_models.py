"""Botocore's descriptions of the services that commands call, read at import (see `tests/support/command.py`).

To read them takes longer than most commands.
"""

from smdp_launch.jobs.service.clients import connect_endpoint

_clients = connect_endpoint("http://127.0.0.1:1", "us-east-1", "key", "secret")
for _name in ("ec2", "ecr", "efs", "fsx", "iam", "service-quotas", "sts"):
    _clients.service(_name)
