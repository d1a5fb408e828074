"""SavedModels of TensorFlow, asked in JSON as the REST API of TensorFlow Serving is.

A request is {"instances": [...]}, with one element for each example, or {"inputs": ...}, with a batch for each input.
The answer is {"predictions": [...]} or {"outputs": ...}. "signature_name" selects a signature. TensorFlow is the
image's own.
"""

from __future__ import annotations

import base64
import importlib
import json
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from smdp_entrypoint.contract.errors import ProgramError

_FILE = "saved_model.pb"
_SIGNATURE = "serving_default"
_KEYS = {"instances": "predictions", "inputs": "outputs"}


class Served(NamedTuple):
    """An answer of the REST API."""

    status: int
    body: bytes

    @classmethod
    def error(cls, status: int, message: str) -> Served:
        return cls(status, json.dumps({"error": message}).encode("utf-8"))


class RequestError(Exception):
    """A request that the model cannot answer."""


def find_models(folder: Path) -> dict[str, dict[int, Path]]:
    """The folders of the SavedModels by name and version: ``NAME/VERSION/saved_model.pb``, at any depth. The name of
    models directly in ``folder`` is that of the folder."""
    models: dict[str, dict[int, Path]] = {}
    for file in sorted(folder.rglob(_FILE)):
        version = file.parent
        if version != folder and version.name.isascii() and version.name.isdecimal():
            models.setdefault(version.parent.name, {})[int(version.name)] = version
    return models


class SavedModels:
    """All versions of all models below a folder, loaded. Raises ProgramError."""

    def __init__(self, folder: Path, default: str = "", gpu: int | None = None) -> None:
        found = find_models(folder)
        if not found:
            raise ProgramError(
                f"{folder} contains no SavedModel, which the script's handlers are for: save it as "
                f"{folder / '1' / _FILE} with tf.saved_model.save(model, os.environ['SM_MODEL_DIR'] + '/1')."
            )
        if default and default not in found:
            raise ProgramError(f"SAGEMAKER_TFS_DEFAULT_MODEL_NAME is {default}; the models are {', '.join(found)}.")
        self.default = default or next(iter(found))
        self._tensorflow = _tensorflow()
        _select_gpu(self._tensorflow, gpu)
        self._models = {
            name: {number: self._load(path) for number, path in versions.items()} for name, versions in found.items()
        }

    def predict(self, body: str | bytes, name: str = "", version: str = "") -> Served:
        """`version`: empty for the newest."""
        versions = self._models.get(name or self.default, {})
        try:
            model = versions[int(version) if version else max(versions)]
        except (KeyError, ValueError):
            return Served.error(404, f"There is no model {name or self.default} {version}".rstrip() + ".")
        errors = self._tensorflow.errors
        try:
            return Served(200, json.dumps(self._answer(model, _request(body))).encode("utf-8"))
        except (RequestError, errors.InvalidArgumentError, errors.UnimplementedError) as error:
            return Served.error(400, str(error))

    def _load(self, path: Path) -> Any:
        try:
            model = self._tensorflow.saved_model.load(str(path))
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            raise ProgramError(f"{path} cannot be loaded: {type(error).__name__}: {lines[0]}") from error
        if not model.signatures:
            raise ProgramError(f"{path} has no signature: save it with tf.saved_model.save(..., signatures=function).")
        return model

    def _answer(self, model: Any, request: Mapping[str, Any]) -> dict[str, Any]:
        name = request.get("signature_name", _SIGNATURE)
        if name not in model.signatures:
            raise RequestError(f"There is no signature {name}; the model has {', '.join(model.signatures)}.")
        function = model.signatures[name]
        inputs = function.structured_input_signature[1]
        (key,) = (one for one in _KEYS if one in request)
        values = _by_input(request[key], list(inputs), key)
        outputs = function(**{one: self._tensor(one, values[one], inputs[one]) for one in inputs})
        plain = {one: _plain(one, tensor) for one, tensor in outputs.items()}
        if key == "inputs":
            return {"outputs": plain if len(plain) > 1 else next(iter(plain.values()))}
        return {"predictions": _rows(plain, len(request[key]))}

    def _tensor(self, name: str, value: Any, wanted: Any) -> Any:
        """TensorFlow itself does not compare the shape with the signature: a kernel that gets another one may abort the
        process."""
        dtype = wanted.dtype
        try:
            tensor = self._tensorflow.constant(_decoded(value) if dtype == self._tensorflow.string else value, dtype)
        except (TypeError, ValueError) as error:
            raise RequestError(f"The input {name} is no tensor of the type {dtype.name}: {error}") from error
        if not wanted.shape.is_compatible_with(tensor.shape):
            raise RequestError(f"The input {name} has the shape {tensor.shape}; the model needs {wanted.shape}.")
        return tensor


def _tensorflow() -> Any:
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise ProgramError(f"The model is a SavedModel, and TensorFlow cannot be imported: {error}.") from error


def _select_gpu(tensorflow: Any, gpu: int | None) -> None:
    """Workers share the GPUs; by default each would take all memory of all of them."""
    gpus = tensorflow.config.list_physical_devices("GPU") if gpu is not None else []
    if gpus:
        mine = gpus[(gpu or 0) % len(gpus)]
        tensorflow.config.set_visible_devices(mine, "GPU")
        tensorflow.config.experimental.set_memory_growth(mine, True)


def _request(body: str | bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The request is not JSON: {error}") from error
    if not isinstance(request, dict) or len([one for one in _KEYS if one in request]) != 1:
        raise RequestError('The request must be an object with either "instances" or "inputs".')
    if "instances" in request and not (isinstance(request["instances"], list) and request["instances"]):
        raise RequestError('"instances" must be a list with at least one element.')
    return request


def _by_input(values: Any, inputs: list[str], key: str) -> Mapping[str, Any]:
    """The batch of each input of the signature."""
    if key == "inputs":
        named = values if isinstance(values, dict) and "b64" not in values else None
    elif all(isinstance(one, dict) and "b64" not in one for one in values):
        if any(one.keys() != values[0].keys() for one in values):
            raise RequestError('The elements of "instances" have different keys.')
        named = {name: [one[name] for one in values] for name in values[0]}
    else:
        named = None
    if named is None and len(inputs) == 1:
        return {inputs[0]: values}
    if named is None or named.keys() != set(inputs):
        raise RequestError(f"The signature has the inputs {', '.join(inputs)}.")
    return named


def _decoded(value: Any) -> Any:
    """Texts, and bytes in the form {"b64": "..."}."""
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"])
    return value


def _plain(name: str, tensor: Any) -> Any:
    def text(value: Any) -> Any:
        if isinstance(value, list):
            return [text(one) for one in value]
        if not isinstance(value, bytes):
            return value
        if name.endswith("_bytes"):
            return {"b64": base64.b64encode(value).decode("ascii")}
        return value.decode("utf-8", "replace")

    return text(tensor.numpy().tolist())


def _rows(outputs: Mapping[str, Any], count: int) -> list[Any]:
    for name, values in outputs.items():
        if not isinstance(values, list) or len(values) != count:
            raise RequestError(f'The output {name} is not one element for each of the "instances": send "inputs".')
    if len(outputs) == 1:
        return list(next(iter(outputs.values())))
    return [dict(zip(outputs, row)) for row in zip(*outputs.values())]
