"""What is in the way of an answer: something that passes, credentials that have expired, or a refusal."""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus

from smdp_launch.errors import EnvironmentProblem


class Trouble(Enum):
    TEMPORARY = "temporary"
    CREDENTIALS = "credentials"
    FINAL = "final"


# As the services and botocore's own retries name them.
_PASSING = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "SlowDown",
        "ProvisionedThroughputExceededException",
        "RequestTimeout",
        "RequestTimeoutException",
        "InternalFailure",
        "InternalError",
        "InternalServerError",
        "InternalServerException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "OperationAborted",
    }
)
_EXPIRED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "TokenRefreshRequired",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "UnrecognizedClientException",
    }
)


def trouble(error: BaseException | None) -> Trouble:
    """What kind of trouble one of botocore's errors is, or an EnvironmentProblem of a connection made anew."""
    from botocore import exceptions as botocore

    if isinstance(error, botocore.ClientError):
        return _of_an_answer(error.response)
    if isinstance(error, botocore.HTTPClientError | botocore.ConnectionError | botocore.IncompleteReadError):
        return Trouble.TEMPORARY
    # The parser of an answer that was cut in the middle.
    if type(error).__name__ == "ResponseParserError":
        return Trouble.TEMPORARY
    expired = (
        botocore.NoCredentialsError,
        botocore.PartialCredentialsError,
        botocore.CredentialRetrievalError,
        botocore.SSOError,
        botocore.TokenRetrievalError,
        EnvironmentProblem,
    )
    return Trouble.CREDENTIALS if isinstance(error, expired) else Trouble.FINAL


def _of_an_answer(response: dict[str, dict[str, object]]) -> Trouble:
    code, status = response.get("Error", {}).get("Code"), response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _EXPIRED:
        return Trouble.CREDENTIALS
    if status == HTTPStatus.INSUFFICIENT_STORAGE:  # the local cloud's disk is full
        return Trouble.FINAL
    if code in _PASSING or status == 429 or (isinstance(status, int) and status >= 500):
        return Trouble.TEMPORARY
    return Trouble.FINAL


def reason(error: Exception) -> str:
    """One line."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        answer = error.response["Error"]
        return f"{answer.get('Code')}: {answer.get('Message')}"
    return str(error)
