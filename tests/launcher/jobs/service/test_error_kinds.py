"""Errors of the credentials are known, however the user logs in."""

from __future__ import annotations

import pytest
from botocore import exceptions

from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind

#: Those of a profile or a source that does not exist, or of a token for other services.
_NO_EXPIRY = {"UnknownCredentialError", "UnknownTokenProviderError", "InvalidTokenError", "NoAuthTokenError"}
_WORDS = ("Credential", "SSO", "Login", "Token", "RefreshWithMFA")


def credential_errors() -> list[type[exceptions.BotoCoreError]]:
    errors = [one for one in vars(exceptions).values() if isinstance(one, type)]
    return [
        one
        for one in errors
        if issubclass(one, exceptions.BotoCoreError)
        and one.__name__ not in _NO_EXPIRY
        and any(word in one.__name__ for word in _WORDS)
    ]


@pytest.mark.parametrize("kind", credential_errors(), ids=lambda one: str(one.__name__))
def test_error_of_expired_credentials_is_one_of_credentials(kind: type[exceptions.BotoCoreError]) -> None:
    error = kind(provider="sso", error_msg="expired", cred_var="x")
    assert error_kind(error) is ErrorKind.CREDENTIALS


def test_botocore_without_aws_login_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(exceptions, "LoginError", raising=False)
    assert error_kind(exceptions.NoCredentialsError()) is ErrorKind.CREDENTIALS
    assert error_kind(exceptions.ParamValidationError(report="x")) is ErrorKind.FINAL
