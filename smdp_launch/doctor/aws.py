"""Checks of the AWS configuration. Without `call`, they read files and variables, and make no request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from smdp_launch.doctor import limits
from smdp_launch.doctor.results import CheckResult
from smdp_launch.secret_forms import without_forms

if TYPE_CHECKING:
    from botocore.session import Session

_MOST_SKEW = 300  # seconds, from which AWS refuses signatures
_LARGE_SKEW = 60  # seconds
_ENDPOINT = "AWS_ENDPOINT_URL"
#: By the name of the key ID, the name of the secret that must stand beside it.
_SECRETS = {"AWS_ACCESS_KEY_ID": "AWS_SECRET_ACCESS_KEY", "aws_access_key_id": "aws_secret_access_key"}
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
        known = ", ".join(sorted(profiles))
        fix = f"use one of these profiles: {known}" if known else "no file has a profile; remove the variable"
        yield CheckResult("aws", "warning", f"there is no profile {profile}", fix, "unset AWS_PROFILE")
        return
    section, region = profiles.get(profile, {}), session.get_config_variable("region")
    source, missing = credentials_source(environ, section)
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
    elif missing is not None:
        fix = f"set {missing} too, or remove the key ID"
        yield CheckResult("aws", "warning", f"{text} without {missing}, which AWS's libraries refuse", fix)
    else:
        yield CheckResult("aws", "ok", text)
    yield from _endpoints(session, environ, section)


def _endpoints(session: Session, environ: Mapping[str, str], section: Mapping[str, Any]) -> Iterator[CheckResult]:
    """The addresses that AWS's libraries use in place of AWS's own."""
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return
    variables = [name for name in sorted(environ) if _is_endpoint(name) and environ[name]]
    found = {name: environ[name] for name in variables}
    services = session.full_config.get("services", {}).get(section.get("services"), {})
    for service, settings in {"": section, **services}.items():
        if isinstance(settings, Mapping) and settings.get("endpoint_url"):
            found[f"endpoint_url of {f'{service} in ' if service else ''}the profile"] = settings["endpoint_url"]
    if found:
        text = ", ".join(f"{name} is {without_forms(str(url))}" for name, url in found.items())
        fix = f"remove {'this setting' if len(found) == 1 else 'these settings'} for launches on AWS"
        yield CheckResult("aws endpoint", "warning", text, fix, f"unset {' '.join(variables)}" if variables else None)


def _is_endpoint(name: str) -> bool:
    return name == _ENDPOINT or name.startswith(f"{_ENDPOINT}_")


def credentials_source(environ: Mapping[str, str], section: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Where botocore would find credentials first, and the name of the secret key if it is missing there. No source if
    neither variables nor files have any.

    Args:
        section: of the profile, from both files of the AWS configuration.
    """
    sources: tuple[tuple[Mapping[str, Any], str, str], ...] = (
        (environ, "AWS_ACCESS_KEY_ID", "the variable AWS_ACCESS_KEY_ID"),
        (section, "role_arn", "a role that the profile assumes"),
        (environ, "AWS_WEB_IDENTITY_TOKEN_FILE", "a web identity token"),
        (section, "sso_session", "IAM Identity Center (`aws sso login`)"),
        (section, "sso_start_url", "IAM Identity Center (`aws sso login`)"),
        (section, "aws_access_key_id", "keys in the profile"),
        (section, "login_session", "a session of the AWS console (`aws login`)"),
        (section, "credential_process", "a program that the profile names"),
        (environ, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "the container's credentials"),
        (environ, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "the container's credentials"),
    )
    for where, name, text in sources:
        if where.get(name):
            secret = _SECRETS.get(name)
            return text, secret if secret is not None and not where.get(secret) else None
    return None, None


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
