"""The contract of SageMaker's TensorFlow Serving container: a SavedModel, and a script with handlers around it.

`input_handler(data, context)` makes a request of TensorFlow Serving's REST API, and `output_handler(response, context)`
the answer to the client. `handler(data, context)` replaces both, and sends its requests to `context.rest_uri` itself.
Without a script, JSON and CSV go to the model. The models are loaded by this process (`saved_model`): there is no
`tensorflow_model_server`, and no gRPC.
"""

from __future__ import annotations

import csv
import http.server
import io
import json
import re
import secrets
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Mapping, NamedTuple, Sequence
from urllib.parse import urlsplit

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.serving import content
from smdp_entrypoint.serving.saved_model import SavedModels, Served, find_models

_HANDLERS = ("handler", "input_handler", "output_handler")
_TOOLKIT = ("model_fn", "transform_fn", "input_fn", "predict_fn", "output_fn")
_ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"
_JSON_LINES = ("application/jsonlines", "application/jsons")
#: The types that the container passes to the model without a script.
TYPES = (content.JSON, *_JSON_LINES, content.CSV)

Call = Callable[..., Any]


class ServingContext(NamedTuple):
    """The context of a request, with the container's names."""

    model_name: str
    model_version: str | None
    method: str | None
    rest_uri: str
    grpc_port: str | None
    channel: Any
    custom_attributes: str | None
    request_content_type: str
    accept_header: str
    content_length: int


class ServingResponse:
    """The model's answer, with those attributes of a response of `requests` that handlers use."""

    def __init__(self, served: Served) -> None:
        self.status_code = served.status
        self.content = served.body
        self.headers: Mapping[str, str] = {"Content-Type": content.JSON}
        self.encoding = "utf-8"

    @property
    def ok(self) -> bool:
        return self.status_code < 400

    @property
    def text(self) -> str:
        return self.content.decode("utf-8")

    def json(self) -> Any:
        return json.loads(self.content)

    def raise_for_status(self) -> None:
        if not self.ok:
            raise ValueError(f"{self.status_code}: {self.text}")


def is_wanted(module: ModuleType | None, model_dir: Path) -> bool:
    """Whether the script has handlers and none of the toolkit's functions, or neither and the model is a SavedModel."""

    def has(names: Sequence[str]) -> bool:
        return any(callable(getattr(module, one, None)) for one in names)

    return not has(_TOOLKIT) and (has(_HANDLERS) or bool(find_models(model_dir)))


class TensorFlowServing:
    """The script's handlers and the loaded models. Raises ProgramError.

    Args:
        call: calls a function of the script; its first argument is the function's name.
    """

    def __init__(self, module: ModuleType | None, model_dir: Path, default: str, gpu: int | None, call: Call) -> None:
        self._handler, self._input, self._output = (getattr(module, one, None) for one in _HANDLERS)
        self._call = call
        if self._handler is None and (self._input is None) != (self._output is None):
            found, absent = _HANDLERS[1:] if self._input is not None else _HANDLERS[:0:-1]
            raise ProgramError(f"The script defines {found} without {absent}: define both, or handler.")
        self._models = SavedModels(model_dir, default, gpu)
        self._uri = _Rest(self._models).uri if self._handler is not None else "http://localhost:8501/v1/models"

    def answer(self, body: bytes, headers: Mapping[str, str]) -> Any:
        """What the script returns; without a script, the answer of the model. Raises UnsupportedTypeError and
        ContentError."""
        context = self._context(body, headers)
        if self._handler is not None:
            return self._call("handler", self._handler, io.BytesIO(body), context)
        if self._input is None:
            return self._predict(_request(body, content.media_type(context.request_content_type)), context)
        request = self._call("input_handler", self._input, io.BytesIO(body), context)
        if not isinstance(request, (str, bytes)):
            return self._call("input_handler", _refuse_request, request)
        served = self._predict(request, context)
        return self._call("output_handler", self._output, ServingResponse(served), context)

    def _predict(self, request: str | bytes, context: ServingContext) -> Served:
        if context.method not in (None, "predict"):
            return Served.error(400, f"The method {context.method} is not supported: use predict.")
        return self._models.predict(request, context.model_name, context.model_version or "")

    def _context(self, body: bytes, headers: Mapping[str, str]) -> ServingContext:
        custom = headers.get(_ATTRIBUTES)
        attributes = dict(one.split("=", 1) for one in re.findall(r"tfs-[a-z-]+=[^,]+", custom or ""))
        name = attributes.get("tfs-model-name", self._models.default)
        version, method = attributes.get("tfs-model-version"), attributes.get("tfs-method")
        place = f"{self._uri}/{name}" + (f"/versions/{version}" if version else "")
        return ServingContext(
            model_name=name,
            model_version=version,
            method=method,
            rest_uri=f"{place}:{method or 'predict'}",
            grpc_port=None,
            channel=None,
            custom_attributes=custom,
            request_content_type=headers.get("content-type") or content.JSON,
            accept_header=headers.get("accept") or content.JSON,
            content_length=len(body),
        )


def _refuse_request(request: Any) -> None:
    raise TypeError(f"it returned a {type(request).__name__}, but the model needs JSON as text: return json.dumps(...)")


def _request(body: bytes, kind: str) -> str:
    """The request for a body that no script reads. Raises UnsupportedTypeError and ContentError."""
    if kind not in TYPES:
        raise content.UnsupportedTypeError(content.unsupported("Content type", kind, TYPES))
    try:
        text = body.decode("utf-8")
        if kind == content.CSV:
            rows = [[content.number(one) for one in row] for row in csv.reader(io.StringIO(text)) if row]
            return json.dumps({"instances": [row if len(row) > 1 else row[0] for row in rows]})
        if kind in _JSON_LINES:
            value: Any = [json.loads(line) for line in text.splitlines() if line.strip()]
            return json.dumps({"instances": value})
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise content.ContentError(f"The body is not {kind}: {error}") from error
    if isinstance(value, dict) and ("instances" in value or "inputs" in value):
        return text
    is_batch = isinstance(value, list) and bool(value) and isinstance(value[0], list)
    return json.dumps({"instances": value if is_batch else [value]})


class _Rest:
    """The REST API on a port of the loopback interface, for a script's `handler`. Its paths begin with a secret, which
    other users of the machine do not know."""

    def __init__(self, models: SavedModels) -> None:
        secret = secrets.token_urlsafe(16)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _rest_handler(models, secret))
        server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{server.server_address[1]}/{secret}/v1/models"
        threading.Thread(target=server.serve_forever, daemon=True).start()


def _rest_handler(models: SavedModels, secret: str) -> type[http.server.BaseHTTPRequestHandler]:
    place = re.compile(rf"/{re.escape(secret)}/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60.0

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = place.fullmatch(urlsplit(self.path).path)
            served = Served.error(404, "There is no such path: use context.rest_uri.")
            if found is not None:
                served = models.predict(body, found[1], found[2] or "")
            self.send_response(served.status)
            self.send_header("Content-Type", content.JSON)
            self.send_header("Content-Length", str(len(served.body)))
            self.end_headers()
            self.wfile.write(served.body)

        def log_message(self, format: str, *args: Any) -> None:
            """No line for each request."""

    return Handler
