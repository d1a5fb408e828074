"""Refusals in the shape that AWS gives them, so that any client turns them into its own exceptions."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from xml.sax.saxutils import escape

from smdp_launch.disk import full

DISK_FULL = "DiskFull"


class ServiceError(Exception):
    """An answer other than success. Raised by whoever finds the fault, rendered once at the gateway."""

    def __init__(self, code: str, message: str, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = int(status)


def validation(message: str) -> ServiceError:
    return ServiceError("ValidationException", message)


def disk_full(folder: Path) -> ServiceError:
    """Unlike other codes of 500 and above it is not worth another try: a person has to act."""
    return ServiceError(DISK_FULL, full(folder), HTTPStatus.INSUFFICIENT_STORAGE)


def as_json(error: ServiceError) -> bytes:
    return json.dumps({"__type": error.code, "message": error.message}).encode()


def as_xml(error: ServiceError, resource: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        f"<Resource>{escape(resource)}</Resource></Error>"
    ).encode()
