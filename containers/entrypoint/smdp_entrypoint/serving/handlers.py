"""The functions of the model's script, with SageMaker's defaults for those that it does not define."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.serving import content
from smdp_entrypoint.serving.context import Context
from smdp_entrypoint.serving.messages import Request, Response
from smdp_entrypoint.serving.saved_model import Served
from smdp_entrypoint.serving.tensorflow_contract import TensorFlowServing, is_wanted

_EXPORTED = "*.pt2"
_STEPS = ("input_fn", "predict_fn", "output_fn")
#: An exception of the toolkit, which has no status of its own.
_UNSUPPORTED = "UnsupportedFormatError"


class RequestFailed(Exception):
    """A function of the script raised an exception, which is the cause of this one."""

    def __init__(self, function: str, error: BaseException) -> None:
        super().__init__(f"{function} failed: {_described(error)}")
        self.error = error


class Handlers:
    """The script's functions and the model that `load` has loaded. One thread uses them."""

    def __init__(self, script: Path | None, model_dir: Path, accept: str, gpu: int | None = None) -> None:
        self._script = script
        self._model_dir = model_dir
        self._accept = accept
        self._gpu = gpu
        self._context = Context(str(model_dir), gpu)
        self._module: ModuleType | None = None
        self._model: Any = None
        self._torch: ModuleType | None = None
        self._tensorflow: TensorFlowServing | None = None

    def load(self) -> None:
        """Import the script and load the model. Raises ProgramError, whose cause is the script's own exception."""
        if self._script is not None:
            self._module = _imported(self._script)
        if is_wanted(self._module, self._model_dir):
            default = os.environ.get("SAGEMAKER_TFS_DEFAULT_MODEL_NAME", "")
            self._tensorflow = TensorFlowServing(self._module, self._model_dir, default, self._gpu, self._guarded)
            return
        own = [name for name in _STEPS if self._function(name)]
        if self._function("transform_fn") and own:
            raise ProgramError(
                f"{self._name} defines transform_fn and {' and '.join(own)}. transform_fn replaces the other "
                "functions: define it alone, or only the others."
            )
        try:
            load = self._function("model_fn")
            self._model = self._call("model_fn", load, str(self._model_dir)) if load else self._default_model()
        except RequestFailed as failed:
            raise ProgramError(f"{self._name}: {failed}") from failed.error
        # Decided once: a function that imports torch when it is first called gets the same kind of data every time.
        self._torch = sys.modules.get("torch")

    def answer(self, request: Request) -> Response:
        """The answer to a request. If the script raises, the status is the exception's own or 500, and the traceback is
        printed."""
        headers = request.headers
        kind = content.media_type(headers.get("content-type", "")) or content.JSON
        accept = content.accepted(headers.get("accept", ""), self._accept)
        self._context.begin(headers)
        try:
            if self._tensorflow is not None:
                return self._response(self._tensorflow.answer(request.body, headers), accept)
            return self._transform(request.body, kind, accept)
        except content.UnsupportedTypeError as error:
            return Response.refusal(415, str(error))
        except content.ContentError as error:
            return Response.refusal(400, str(error))
        except RequestFailed as failed:
            return _failure(failed)

    @property
    def _name(self) -> str:
        return self._script.name if self._script is not None else "the model"

    def _transform(self, body: bytes, kind: str, accept: str) -> Response:
        data = _as_text(body, kind)
        transform = self._function("transform_fn")
        if transform is not None:
            result = self._call("transform_fn", transform, self._model, data, kind, accept)
            return self._response(result, accept)
        read, predict, write = map(self._function, _STEPS)
        value = self._call("input_fn", read, data, kind) if read else self._default_input(data, kind)
        if predict is not None:
            prediction = self._call("predict_fn", predict, value, self._model)
        else:
            prediction = self._guarded("the default predict_fn", self._default_prediction, value, kind)
        if write is not None:
            return self._response(self._call("output_fn", write, prediction, accept), accept)
        return self._response(self._guarded("the default output_fn", content.encode, prediction, accept), accept)

    def _response(self, result: Any, accept: str) -> Response:
        """`result` is a body, a pair of body and content type, or an answer of a SavedModel."""
        if isinstance(result, Served):
            return Response(result.status, result.body, content.JSON)
        kind = self._context.get_response_content_type() or accept
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], str):
            result, kind = result
        if isinstance(result, (bytes, bytearray, memoryview)):
            body = bytes(result)
        elif isinstance(result, str):
            body = result.encode("utf-8", "surrogatepass")
        else:
            body = self._guarded("the answer", content.encode, result, content.media_type(kind))
        context = self._context
        return Response(context.get_response_status_code(), body, kind, context.get_response_headers())

    def _function(self, name: str) -> Callable[..., Any] | None:
        found = getattr(self._module, name, None)
        return found if callable(found) else None

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        more = (self._context,) if _takes_context(function, len(arguments)) else ()
        return self._guarded(name, function, *arguments, *more)

    def _guarded(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Raises RequestFailed for every exception of the function, SystemExit included: an exit would end the worker
        without an answer."""
        try:
            return function(*arguments)
        except content.UnsupportedTypeError:
            raise
        except (Exception, SystemExit) as error:
            raise RequestFailed(name, error) from error

    def _default_model(self) -> Any:
        """The only TorchScript module or exported program in the model's folder. Raises ProgramError."""
        files = sorted(path for kind in ("*.pt", "*.pth", _EXPORTED) for path in self._model_dir.glob(kind))
        torch = content.torch() if len(files) == 1 else None
        if torch is None:
            raise ProgramError(
                f"{self._name} defines no model_fn(model_dir), and {self._model_dir} has no single TorchScript file "
                "(*.pt, *.pth) or exported program (*.pt2) that torch could load. Define model_fn in the script that "
                "SAGEMAKER_PROGRAM names "
                f"(default: inference.py) in {self._model_dir / 'code'}."
            )
        try:
            return _loaded(torch, files[0], self._device(torch))
        except Exception as error:
            raise ProgramError(
                f"{self._name} defines no model_fn(model_dir), and {files[0].name} is no TorchScript file or exported "
                f"program: {_one_line(error)}. Define model_fn, which builds the model and loads its state."
            ) from error

    def _default_input(self, data: str | bytes, kind: str) -> Any:
        """Arrays as tensors if the script or its model has loaded torch, as AWS's PyTorch container passes them:
        numbers in text as float32, on the GPU if there is one."""
        value, torch = content.decode(data, kind), self._torch
        if torch is None or not hasattr(value, "dtype"):
            return value
        dtype = torch.float32 if kind in content.TEXT_TYPES else None
        return self._guarded(
            "the default input_fn", lambda: torch.as_tensor(value, dtype=dtype, device=self._device(torch))
        )

    def _default_prediction(self, value: Any, kind: str) -> Any:
        if self._torch is not None and isinstance(self._model, self._torch.nn.Module):
            return self._torch_prediction(self._torch, value, kind)
        if hasattr(self._model, "predict"):
            return self._model.predict(value)
        if callable(self._model):
            return self._model(value)
        raise TypeError(
            f"the model is a {type(self._model).__name__}, which has no method predict and cannot be called: define "
            "predict_fn(data, model)"
        )

    def _torch_prediction(self, torch: ModuleType, value: Any, kind: str) -> Any:
        """In evaluation mode and without gradients, on the model's device. Numbers in text become float32, the type of
        most models' weights."""
        parameter = next(iter(self._model.parameters()), None)
        device = parameter.device if parameter is not None else self._device(torch)
        with contextlib.suppress(NotImplementedError):  # exported programs have no mode
            self._model.eval()
        if not isinstance(value, (torch.Tensor, dict)):
            value = torch.as_tensor(value, dtype=torch.float32 if kind in content.TEXT_TYPES else None)
        if isinstance(value, torch.Tensor):
            value = value.to(device)
        with torch.no_grad():
            return self._model(value)

    def _device(self, torch: ModuleType) -> str:
        if not torch.cuda.is_available():
            return "cpu"
        return f"cuda:{(self._gpu or 0) % torch.cuda.device_count()}"


def _loaded(torch: ModuleType, file: Path, device: str) -> Any:
    if file.match(_EXPORTED):
        return torch.export.load(str(file)).module().to(device)
    with warnings.catch_warnings():
        # torch recommends to write exported programs; existing files still have to be read.
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(str(file), map_location=device).eval()


def _imported(script: Path) -> ModuleType:
    """Import the file as a module of its own name, so that its classes can be unpickled. Raises ProgramError."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    if spec is None or spec.loader is None:
        raise ProgramError(f"{script} is not a Python file. Set SAGEMAKER_PROGRAM to one, for example inference.py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ProgramError(f"{script.name} cannot be imported: {_one_line(error)}") from error
    return module


def _takes_context(function: Callable[..., Any], count: int) -> bool:
    """Whether the function has one parameter more than `count`, which is required or named `context`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    if any(one.name == "context" and one.kind is not one.KEYWORD_ONLY for one in parameters[count : count + 1]):
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [one for one in parameters if one.kind in kinds and one.default is one.empty]
    return len(required) == count + 1


def _as_text(body: bytes, kind: str) -> str | bytes:
    if kind not in content.TEXT_TYPES:
        return body
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise content.ContentError(f"The body is not {kind}: {error}") from error


def _failure(failed: RequestFailed) -> Response:
    error = failed.error
    traceback.print_exception(type(error), error, error.__traceback__)
    return Response.refusal(_status(error), str(failed))


def _status(error: BaseException) -> int:
    """An exception may have a status of its own, as the toolkit's errors have. An unsupported type gets the same status
    from a script as from the defaults."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
        return status
    return 415 if any(one.__name__ == _UNSUPPORTED for one in type(error).__mro__) else 500


def _described(error: BaseException) -> str:
    """The text of the toolkit's errors is their arguments; they have a message beside it."""
    message = getattr(error, "message", None)
    is_toolkits = isinstance(message, str) and hasattr(error, "phrase")
    return _one_line(error, message if is_toolkits else None)


def _one_line(error: BaseException, text: str | None = None) -> str:
    lines = (str(error) if text is None else text).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
