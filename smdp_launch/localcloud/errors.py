"""Errors in the form of AWS, so that every client turns them into its own exceptions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from xml.sax.saxutils import escape

from smdp_launch.disk import full

DISK_FULL = "DiskFull"
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class ServiceError(Exception):
    """An answer other than success. Any code may raise it; the gateway renders it.

    Args:
        status: of HTTP.
        details: fields that S3 adds to some of its errors, such as the name of a bucket.
        fields: of the error's shape in the service's model, which errors in JSON have beside code and message.
    """

    def __init__(
        self,
        code: str,
        message: str,
        status: int = HTTPStatus.BAD_REQUEST,
        details: Mapping[str, str] | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = int(status)
        self.details = dict(details or {})
        self.fields = dict(fields or {})


def validation(message: str) -> ServiceError:
    return ServiceError("ValidationException", message)


def disk_full(folder: Path) -> ServiceError:
    """Unlike other errors with status 500 and above it must not be retried: the user has to free space."""
    return ServiceError(DISK_FULL, full(folder), HTTPStatus.INSUFFICIENT_STORAGE)


def damaged(file: Path) -> ServiceError:
    """Not InternalFailure, which clients retry: the file stays as it is."""
    return ServiceError("StateDamaged", f"{file} is missing or damaged. Remove the folder {file.parent}.")


def as_json(error: ServiceError) -> bytes:
    return json.dumps({"__type": error.code, "message": error.message, **error.fields}).encode()


def as_xml(error: ServiceError, resource: str, request: str) -> bytes:
    elements = {
        "Code": error.code,
        "Message": error.message,
        **error.details,
        "Resource": resource,
        "RequestId": request,
        "HostId": request,
    }
    content = "".join(f"<{name}>{escape(allowed_in_xml(value))}</{name}>" for name, value in elements.items())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{content}</Error>'.encode()


def allowed_in_xml(text: str) -> str:
    """The text with a replacement for each character that XML 1.0 does not allow."""
    return _NOT_IN_XML.sub("\ufffd", text)
