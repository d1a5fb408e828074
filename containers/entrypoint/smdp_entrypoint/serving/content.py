"""Decodes request bodies and encodes predictions, for scripts without an `input_fn` or an `output_fn`.

The types are those of SageMaker's inference toolkit. numpy and torch are used if the script or the image has them.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
from types import ModuleType
from typing import Any, Sequence

JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"
#: The script gets the bodies of these types as text.
TEXT_TYPES = (JSON, CSV)


class UnsupportedTypeError(Exception):
    """A content type that the default functions do not support; the message names those that they do support."""


class ContentError(Exception):
    """A body that is not of its content type."""


def numpy() -> ModuleType | None:
    """numpy, if it is installed."""
    return _installed("numpy")


def torch() -> ModuleType | None:
    """torch, if it is installed. The import takes a second or more."""
    return _installed("torch")


def _installed(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def media_type(value: str) -> str:
    """The type in a Content-Type header, without its parameters."""
    return value.partition(";")[0].strip().lower()


def supported() -> list[str]:
    return [JSON, CSV, *([NPY] if numpy() else [])]


def accepted(header: str, default: str) -> str:
    """The type of the answer to a request with this Accept header: the first supported one, `default` if the client
    accepts anything. A type that is not supported is returned unchanged: a script's own `output_fn` may support it."""
    wanted = [one for one in map(media_type, header.split(",")) if one]
    if not wanted or any(one in ("*/*", "application/*") for one in wanted):
        return default
    return next((one for one in wanted if one in supported()), wanted[0])


def decode(body: str | bytes, content_type: str) -> Any:
    """The data in a body: an array if numpy is installed and the data is numeric, else lists. Raises ContentError and
    UnsupportedTypeError."""
    try:
        if content_type == JSON:
            return _array(json.loads(body))
        if content_type == CSV:
            return _read_csv(body if isinstance(body, str) else body.decode("utf-8"))
        module = numpy()
        if content_type == NPY and module is not None:
            # Pickled objects could run any code.
            return module.load(io.BytesIO(_bytes(body)), allow_pickle=False)
    except (ValueError, EOFError, RecursionError) as error:
        raise ContentError(f"The body is not {content_type}: {error}") from error
    raise UnsupportedTypeError(unsupported("Content type", content_type, supported()))


def encode(prediction: Any, accept: str) -> bytes:
    """The prediction as a body of the type `accept`. Raises UnsupportedTypeError, and TypeError or ValueError for a
    prediction that the type cannot represent."""
    if accept == JSON:
        return json.dumps(_plain(prediction), default=_plain).encode("utf-8")
    if accept == CSV:
        return _write_csv(_plain(prediction)).encode("utf-8")
    module = numpy()
    if accept == NPY and module is not None:
        file = io.BytesIO()
        module.save(file, module.asarray(_on_cpu(prediction)), allow_pickle=False)
        return file.getvalue()
    raise UnsupportedTypeError(unsupported("Accept type", accept, supported()))


def unsupported(what: str, name: str, types: Sequence[str]) -> str:
    return f"{what} {name or '(none)'} is not supported. Supported types: {', '.join(types)}."


def _bytes(body: str | bytes) -> bytes:
    return body.encode("utf-8") if isinstance(body, str) else body


def _array(value: Any) -> Any:
    """Numbers and nested lists of numbers as an array; every other value unchanged."""
    module = numpy()
    if module is None or not isinstance(value, (list, int, float)):
        return value
    try:
        array = module.array(value)
    except (ValueError, TypeError, OverflowError):  # lists of different lengths
        return value
    return array if array.dtype.kind in "bif" else value


def _read_csv(text: str) -> Any:
    """One row or one column as a flat list, all else as a list of lists, as the AWS toolkit does."""
    rows = [[number(cell) for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    if not any(cell.strip() for row in rows for cell in row if isinstance(cell, str)):  # missing numbers
        rows = [[math.nan if isinstance(cell, str) else cell for cell in row] for row in rows]
    if rows and all(len(row) == 1 for row in rows):
        return _array([cell for (cell,) in rows])
    return _array(rows[0] if len(rows) == 1 else rows)


def number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _write_csv(value: Any) -> str:
    """A flat list as one column, as numpy's savetxt does in the AWS toolkit."""
    file = io.StringIO()
    rows = value if isinstance(value, (list, tuple)) else [value]
    nested = bool(rows) and all(isinstance(row, (list, tuple)) for row in rows)
    csv.writer(file, lineterminator="\n").writerows(rows if nested else [[one] for one in rows])
    return file.getvalue()


def _on_cpu(value: Any) -> Any:
    """A tensor as an array; every other value unchanged. `detach` identifies a tensor without an import of torch."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _plain(value: Any) -> Any:
    """Arrays, tensors and numpy's numbers as lists and numbers of Python."""
    value = _on_cpu(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"a prediction of the type {type(value).__name__} needs an output_fn in the script")
