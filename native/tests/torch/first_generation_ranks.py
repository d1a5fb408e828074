"""Starts scripts that use the first generation of the library, for the test_first_generation_*.py files."""

import os
import subprocess
import sys
import textwrap
from typing import List

import pytest
import ranks
from torch_version import torch_version


def needs(major: int, minor: int, reason: str) -> pytest.MarkDecorator:
    """Skip a test of a feature that older versions of torch lack with every backend."""
    here = torch_version()
    return pytest.mark.skipif(here < (major, minor), reason=f"torch {here[0]}.{here[1]} {reason}")


meets_twice = needs(2, 1, "cannot meet a second time at one port, on Gloo neither")

IMPORTS = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import smdistributed.dataparallel.torch.distributed as sdp
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel
from torch.nn.functional import mse_loss

def raised(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise SystemExit(f"no {kind.__name__}")
"""
INIT = IMPORTS + "\nsdp.init_process_group()\n"


def launched(body: str, hosts: "tuple[int, ...]" = (2, 2), **env: str) -> List[ranks.Outcome]:
    return ranks.run(hosts, INIT + textwrap.dedent(body), env=env)


def alone(body: str) -> "subprocess.CompletedProcess[str]":
    """Run a script directly, without a launcher."""
    launch = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
    env = {name: value for name, value in os.environ.items() if name not in launch}
    command = [sys.executable, "-c", textwrap.dedent(body)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
