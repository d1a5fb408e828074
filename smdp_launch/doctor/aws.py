"""Checks of the AWS configuration. Without `call`, they read files and variables, and make no request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from smdp_launch.doctor import limits
from smdp_launch.doctor.results import CheckResult
from smdp_launch.secret_forms import without_forms

_MOST_SKEW = 300  # seconds, from which AWS refuses signatures
_LARGE_SKEW = 60  # seconds
_INSTANCE = "none in variables and files; an EC2 instance or container may provide some, which --aws tries"


def configuration(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """The profile, the region, and where credentials come from. Credentials are not shown."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session()
    profile = session.profile or "default"
    try:
        profiles = session.full_config["profiles"]
    except BotoCoreError as error:
        yield CheckResult("aws", "warning", str(error), "correct the file, or name another with AWS_CONFIG_FILE")
        return
    if session.profile is not None and profile not in profiles:
        fix = f"use one of these profiles: {', '.join(sorted(profiles)) or 'none'}"
        yield CheckResult("aws", "warning", f"there is no profile {profile}", fix, "unset AWS_PROFILE")
        return
    section, region = profiles.get(profile, {}), session.get_config_variable("region")
    source = credentials_source(environ, section)
    text = (
        f"profile {profile}, region {region or 'none (a job file names its own)'}, credentials: {source or _INSTANCE}"
    )
    if source is None:
        yield CheckResult(
            "aws",
            "warning",
            f"{text} (a launch on AWS needs them, a local run does not)",
            "set AWS_PROFILE, or save keys",
            "aws configure",
        )
    else:
        yield CheckResult("aws", "ok", text)
    endpoint = environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        fix = "remove the variable for launches on AWS"
        text = f"AWS_ENDPOINT_URL is {without_forms(endpoint)}"
        yield CheckResult("aws endpoint", "warning", text, fix, "unset AWS_ENDPOINT_URL")


def credentials_source(environ: Mapping[str, str], section: Mapping[str, Any]) -> str | None:
    """Where botocore would find credentials first; None if neither variables nor files have any.

    Args:
        section: of the profile, from both files of the AWS configuration.
    """
    named = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE")
    if environ.get("AWS_ACCESS_KEY_ID") and not named:
        return "the variable AWS_ACCESS_KEY_ID"
    sources = {
        "role_arn": "a role that the profile assumes",
        "sso_session": "IAM Identity Center (`aws sso login`)",
        "sso_start_url": "IAM Identity Center (`aws sso login`)",
        "aws_access_key_id": "keys in the profile",
        "credential_process": "a program that the profile names",
    }
    found = next((text for key, text in sources.items() if section.get(key)), None)
    if found is not None:
        return found
    variables = {
        "AWS_ACCESS_KEY_ID": "the variable AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "a web identity token",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "the container's credentials",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "the container's credentials",
    }
    return next((text for name, text in variables.items() if environ.get(name)), None)


def account() -> Iterator[CheckResult]:
    """Ask AWS who the user is, and compare the clocks."""
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import Session

    try:
        session = Session()
        region = session.get_config_variable("region") or "us-east-1"
        config = Config(retries={"total_max_attempts": 2}, connect_timeout=10, read_timeout=10)
        answer = session.create_client("sts", region_name=region, config=config).get_caller_identity()
        yield CheckResult("aws identity", "ok", f"{answer['Arn']} (account {answer['Account']})")
    except ClientError as error:
        answer = error.response
        details = answer["Error"]
        skew = _skew(answer)
        fix = "log in again: aws sso login, or new keys" if skew is None or abs(skew) < _MOST_SKEW else "set the clock"
        yield CheckResult("aws identity", "error", f"AWS refuses the credentials: {details['Code']}", fix)
    except (BotoCoreError, ValueError) as error:  # ValueError: an address that is none
        text = f"AWS cannot be asked: {without_forms(str(error))}"
        yield CheckResult("aws identity", "error", text, "check the credentials, the variables AWS_* and the network")
        return
    yield from _clock(_skew(answer))


def _clock(skew: float | None) -> Iterator[CheckResult]:
    if skew is None:
        yield CheckResult("aws clock", "not checked", "the answer has no date")
        return
    text = f"this machine's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the clock of AWS"
    if abs(skew) >= _LARGE_SKEW:
        verdict = "error" if abs(skew) >= _MOST_SKEW else "warning"
        yield CheckResult("aws clock", verdict, text, "set the clock", limits.as_root("timedatectl set-ntp true"))  # type: ignore[arg-type]
    else:
        yield CheckResult("aws clock", "ok", text)


def _skew(answer: Mapping[str, Any]) -> float | None:
    """Seconds that this machine is ahead of the service."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        theirs = parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return None
    return (datetime.now(timezone.utc) - theirs).total_seconds()


def of(environ: Mapping[str, str] | None = None, *, call: bool) -> Iterator[CheckResult]:
    yield from configuration(os.environ if environ is None else environ)
    if call:
        yield from account()
