"""Kinds of errors of a service call: temporary, expired credentials, or final."""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus

from smdp_launch.errors import EnvironmentProblem


class ErrorKind(Enum):
    TEMPORARY = "temporary"
    CREDENTIALS = "credentials"
    FINAL = "final"


#: What the user does about an error of the kind `ErrorKind.CREDENTIALS`.
RENEW_CREDENTIALS = "renew your AWS credentials, for example with `aws sso login`"

# Error codes of the services, also those that botocore retries.
_TEMPORARY_CODES = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled"),
        *("RequestThrottledException", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown"),
        *("ProvisionedThroughputExceededException", "RequestTimeout", "RequestTimeoutException"),
        *("InternalFailure", "InternalError", "InternalServerError", "InternalServerException"),
        *("ServiceUnavailable", "ServiceUnavailableException", "OperationAborted"),
    }
)
_CREDENTIAL_CODES = frozenset(
    {
        *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"),
        *("InvalidClientTokenId", "InvalidAccessKeyId", "UnrecognizedClientException"),
    }
)
# A signature carries the time of the request. The clock of a virtual machine is late after the machine slept, until it
# is set again.
_SIGNATURE_CODES = frozenset({"InvalidSignatureException", "SignatureDoesNotMatch"})
_WRONG_CLOCK = ("Signature expired", "not yet current")


def error_kind(error: BaseException | None) -> ErrorKind:
    """The kind of one of botocore's errors, or of an EnvironmentProblem that a reconnection raised."""
    from botocore import exceptions as botocore

    if isinstance(error, botocore.ClientError):
        return _kind_of_response(error.response)
    if isinstance(error, botocore.HTTPClientError | botocore.ConnectionError | botocore.IncompleteReadError):
        return ErrorKind.TEMPORARY
    # An answer that was cut in the middle.
    if type(error).__name__ == "ResponseParserError":
        return ErrorKind.TEMPORARY
    expired = (
        botocore.NoCredentialsError,
        botocore.PartialCredentialsError,
        botocore.CredentialRetrievalError,
        botocore.RefreshWithMFAUnsupportedError,
        botocore.SSOError,
        botocore.TokenRetrievalError,
        *_login_errors(),
        EnvironmentProblem,
    )
    return ErrorKind.CREDENTIALS if isinstance(error, expired) else ErrorKind.FINAL


def _login_errors() -> tuple[type[Exception], ...]:
    """Of ``aws login``, which older versions of botocore do not know."""
    from botocore import exceptions as botocore

    found = getattr(botocore, "LoginError", None)
    return (found,) if found is not None else ()


def _kind_of_response(response: dict[str, dict[str, object]]) -> ErrorKind:
    code, status = response.get("Error", {}).get("Code"), response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _CREDENTIAL_CODES:
        return ErrorKind.CREDENTIALS
    if status == HTTPStatus.INSUFFICIENT_STORAGE:  # the local cloud's disk is full
        return ErrorKind.FINAL
    if _is_clock_wrong(response) or code in _TEMPORARY_CODES or status == 429:
        return ErrorKind.TEMPORARY
    if isinstance(status, int) and status >= 500:
        return ErrorKind.TEMPORARY
    return ErrorKind.FINAL


def _is_clock_wrong(response: dict[str, dict[str, object]]) -> bool:
    """Whether the service refused the request because of the time in its signature."""
    answer = response.get("Error", {})
    is_signature = answer.get("Code") in _SIGNATURE_CODES
    is_time = any(one in str(answer.get("Message")) for one in _WRONG_CLOCK)
    return answer.get("Code") == "RequestTimeTooSkewed" or (is_signature and is_time)


def reason(error: Exception) -> str:
    """The error as one line of text."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        answer = error.response["Error"]
        help_ = "; the clock of this machine is wrong: set it" if _is_clock_wrong(error.response) else ""
        return f"{answer.get('Code')}: {answer.get('Message')}{help_}"
    return str(error)
