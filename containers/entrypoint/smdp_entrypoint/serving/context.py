"""The context that functions of a script may have as their last parameter, with the methods of the toolkit's
context."""

from __future__ import annotations

from typing import Any, Mapping


class Context:
    """The request's headers, and the answer's content type.

    The toolkit gives functions a list of requests, of which it uses the first; so the methods accept an index.
    """

    def __init__(self, model_dir: str, gpu: int | None) -> None:
        self.manifest: Mapping[str, Any] = {}
        self.system_properties = {"model_dir": model_dir, "gpu_id": gpu}
        self.request_processor = [self]
        self.response_content_type = ""
        self._headers: Mapping[str, str] = {}

    def begin(self, headers: Mapping[str, str]) -> None:
        """Set the request's headers."""
        self._headers = headers
        self.response_content_type = ""

    def get_all_request_header(self, _index: int = 0) -> Mapping[str, str]:
        return self._headers

    def get_request_properties(self) -> Mapping[str, str]:
        return self._headers

    def get_request_header(self, *place: object) -> str | None:
        """`place`: the header's name, after an optional index."""
        return self._headers.get(str(place[-1]).lower())

    get_request_property = get_request_header

    def set_response_content_type(self, *place: object) -> None:
        """`place`: the content type, after an optional index."""
        self.response_content_type = str(place[-1])
