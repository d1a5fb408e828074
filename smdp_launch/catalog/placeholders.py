"""Placeholders for values to fill in. Drafts, templates and the documentation use exactly these.

A placeholder has the form of a real value, so that a job with placeholders can be checked, planned and run locally.
"""

from __future__ import annotations

import re

from smdp_launch.catalog.local_cloud import THIS_MACHINE

ACCOUNT = "000000000000"
REGION = "xx-placeholder-1"
BUCKET = "s3://your-bucket"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/your-execution-role"
KMS_KEY = "alias/your-key"
SUBNET = "subnet-00000000000000000"
SECURITY_GROUP = "sg-00000000000000000"
#: The file system of this machine in a local run; AWS has no file system of that name.
FILE_SYSTEM = THIS_MACHINE

# An account and a region are parts of an ARN, between colons, or of a registry's host name, between dots.
_FORMS = re.compile(
    rf"(?:^|:){ACCOUNT}(?=[:.])"
    rf"|(?:^|[:.]){REGION}(?=[:.]|$)"
    rf"|^{BUCKET}(?=/|$)"
    r"|:role/(?:.*/)?your-execution-role$"
    rf"|(?:^|:){KMS_KEY}$"
    rf"|^(?:{SUBNET}|{SECURITY_GROUP}|{FILE_SYSTEM})$"
)


def is_placeholder(value: str) -> bool:
    """Whether ``value`` (a role, region, image, S3 location, key, subnet, group or file system) is or contains a
    placeholder. An ARN with a real account and a placeholder's name contains one."""
    return _FORMS.search(value) is not None


def of_hyperparameter(name: str) -> str:
    """The placeholder for a hyperparameter that the script requires without a default."""
    return f"your-{name}"


def training_image(repository: str, tag: str) -> str:
    """The placeholder URI of an image that the user builds and pushes."""
    return f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{repository}:{tag}"
