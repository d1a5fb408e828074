"""A job whose script has a command line, and the diagnostics about it."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdp_launch.checking.job import check_mapping
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.request.hyperparameters import script_arguments

CODES = ("SMDP432", "SMDP433", "SMDP434", "SMDP435", "SMDP436", "SMDP437", "SMDP438")


def job(hyperparameters: Mapping[str, Any], entry: str = "train.py") -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "small",
        "framework": {"name": "pytorch", "version": "2.0.1"},
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/smdp-pytorch:2.0.1-cu118",
        "script": {"entry": entry, "source": "src", "hyperparameters": dict(hyperparameters)},
        "compute": {"instance_type": "ml.p4d.24xlarge", "instance_count": 2, "max_run": 600},
        "channels": {"train": {"s3": "s3://training-data/train"}},
        "output": {"s3": "s3://training-results/output"},
        "role": "arn:aws:iam::123456789012:role/training",
        "region": "us-east-1",
    }


def found(folder: Path, script: str, hyperparameters: Mapping[str, Any], **modules: str) -> list[Diagnostic]:
    """The diagnostics about the command line."""
    source = folder / "src"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(script)
    for name, text in modules.items():
        (source / f"{name}.py").write_text(text)
    checked = check_mapping(job(hyperparameters), folder, environ={})
    return [one for one in checked.diagnostics if one.code in CODES]


def is_refused(script: str, hyperparameters: Mapping[str, Any]) -> bool | None:
    """Whether the script refuses its command line; None if it cannot create its parser."""
    argv = sys.argv
    sys.argv = ["train.py", *script_arguments(hyperparameters)]
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(script, "train.py", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code not in (None, 0)
    except (TypeError, ValueError, AttributeError, argparse.ArgumentError):
        return None
    finally:
        sys.argv = argv
    return False
