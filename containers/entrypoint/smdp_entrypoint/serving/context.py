"""The context that functions of a script may have as their last parameter, with the methods of TorchServe's context and
request processor."""

from __future__ import annotations

import re
import uuid
from typing import Any, Mapping

_TYPE = "content-type"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Context:
    """The request's headers, and the status and the headers of the answer.

    The toolkit gives functions a list of requests, of which it uses the first; so the methods accept an index.
    """

    def __init__(self, model_dir: str, gpu: int | None) -> None:
        self.manifest: Mapping[str, Any] = {}
        self.system_properties = {"model_dir": model_dir, "gpu_id": gpu, "batch_size": 1}
        self.request_processor = [self]
        self.request_ids: dict[int, str] = {}
        self._headers: Mapping[str, str] = {}
        self._status, self._phrase = 200, ""
        self._response_headers: dict[str, str] = {}

    def begin(self, headers: Mapping[str, str]) -> None:
        """Set the request's headers."""
        self.request_ids = {0: str(uuid.uuid4())}
        self._headers = headers
        self._status, self._phrase = 200, ""
        self._response_headers = {}

    def get_request_id(self, idx: int = 0) -> str | None:
        return self.request_ids.get(idx)

    def get_all_request_header(self, idx: int = 0) -> Mapping[str, str]:
        return self._headers

    def get_request_properties(self) -> Mapping[str, str]:
        return self._headers

    def get_request_header(self, *place: object) -> str | None:
        """`place`: the header's name, after an optional index."""
        return self._headers.get(str(place[-1]).lower())

    get_request_property = get_request_header

    def set_response_content_type(self, *place: object) -> None:
        """`place`: the content type, after an optional index."""
        self.add_response_property(_TYPE, place[-1])

    def get_response_content_type(self, idx: int = 0) -> str | None:
        return self._response_headers.get(_TYPE)

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Raises ValueError for a code that is no status of an answer. The phrase is not sent."""
        if not 200 <= int(code) <= 599:
            raise ValueError(f"{code} is no HTTP status of an answer")
        self._status, self._phrase = int(code), phrase

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        self.set_response_status(code, phrase)

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        self.set_response_status(code, reason_phrase or "")

    def get_response_status(self, idx: int = 0) -> tuple[int, str]:
        return self._status, self._phrase

    def get_response_status_code(self) -> int:
        return self._status

    def get_response_status_phrase(self) -> str:
        return self._phrase

    def set_response_header(self, idx: int, key: str, value: object) -> None:
        self.add_response_property(key, value)

    def add_response_property(self, key: str, value: object) -> None:
        """Raises ValueError for a name that no header can have."""
        if not _NAME.fullmatch(key):
            raise ValueError(f"{key!r} is no name of a header")
        self._response_headers[key.lower()] = str(value)

    def get_response_headers(self, idx: int = 0) -> dict[str, str]:
        return self._response_headers

    def get_response_header(self, key: str) -> str | None:
        return self._response_headers.get(key.lower())
