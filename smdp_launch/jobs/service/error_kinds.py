"""Kinds of errors of a service call: temporary, expired credentials, or final."""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus

from smdp_launch.errors import EnvironmentProblem


class ErrorKind(Enum):
    TEMPORARY = "temporary"
    CREDENTIALS = "credentials"
    FINAL = "final"


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
        botocore.SSOError,
        botocore.TokenRetrievalError,
        EnvironmentProblem,
    )
    return ErrorKind.CREDENTIALS if isinstance(error, expired) else ErrorKind.FINAL


def _kind_of_response(response: dict[str, dict[str, object]]) -> ErrorKind:
    code, status = response.get("Error", {}).get("Code"), response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _CREDENTIAL_CODES:
        return ErrorKind.CREDENTIALS
    if status == HTTPStatus.INSUFFICIENT_STORAGE:  # the local cloud's disk is full
        return ErrorKind.FINAL
    if code in _TEMPORARY_CODES or status == 429 or (isinstance(status, int) and status >= 500):
        return ErrorKind.TEMPORARY
    return ErrorKind.FINAL


def reason(error: Exception) -> str:
    """The error as one line of text."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        answer = error.response["Error"]
        return f"{answer.get('Code')}: {answer.get('Message')}"
    return str(error)
