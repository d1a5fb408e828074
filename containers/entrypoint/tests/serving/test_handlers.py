"""The functions of a script, SageMaker's defaults for absent ones, and the types of bodies and answers."""

from __future__ import annotations

import io
import json
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.serving import content
from smdp_entrypoint.serving.handlers import Handlers
from smdp_entrypoint.serving.messages import Request, Response

ECHO = "def model_fn(model_dir): return model_dir\ndef predict_fn(data, model): return data\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Load a script in a process that has not imported torch, unless the test is marked so: an earlier test of this
    process may have, and the default functions pass tensors to scripts that use torch."""
    if request.node.get_closest_marker("torch") is None:
        monkeypatch.delitem(sys.modules, "torch", raising=False)

    def loaded(script: str) -> Handlers:
        path = tmp_path / "inference.py"
        path.write_text(textwrap.dedent(script), encoding="utf-8")
        handlers = Handlers(path, tmp_path, content.JSON)
        handlers.load()
        return handlers

    return loaded


def ask(
    handlers: Handlers, body: bytes | str, kind: str = "application/json", accept: str = "", **more: str
) -> Response:
    headers = {"content-type": kind, "accept": accept, **{name.replace("_", "-"): one for name, one in more.items()}}
    return handlers.answer(Request(body if isinstance(body, bytes) else body.encode("utf-8"), headers))


@pytest.mark.parametrize(
    ("kind", "body", "accept", "answer"),
    [
        ("application/json", "[[1, 2], [3, 4]]", "application/json", "[[1, 2], [3, 4]]"),
        ("application/json; charset=utf-8", '{"a": [1]}', "", '{"a": [1]}'),
        ("", "[1]", "*/*", "[1]"),
        ("text/csv", "1,2\n3,4\n", "application/json", "[[1.0, 2.0], [3.0, 4.0]]"),
        ("text/csv", "1,2", "application/json", "[1.0, 2.0]"),
        ("text/csv", "a,2", "application/json", '["a", 2.0]'),
        ("application/json", "[[1, 2], [3, 4]]", "text/csv", "1,2\n3,4\n"),
        ("text/csv", "1\n2\n3\n", "application/json", "[1.0, 2.0, 3.0]"),
        ("text/csv", "1,,3\n4,5,6\n", "application/json", "[[1.0, NaN, 3.0], [4.0, 5.0, 6.0]]"),
        ("text/csv", "a,,3\n", "application/json", '["a", "", 3.0]'),
        ("application/json", "[0.5, 1.5, 2.5]", "text/csv", "0.5\n1.5\n2.5\n"),
        ("application/json", "3", "text/csv", "3\n"),
        ("application/json", "[1]", "image/png, text/csv;q=0.5", "1\n"),
    ],
)
def test_default_functions_read_and_write_the_types(load: Any, kind: str, body: str, accept: str, answer: str) -> None:
    given = ask(load(ECHO), body, kind, accept)
    assert (given.status, given.body.decode()) == (200, answer)


def test_numpy_arrays_are_read_and_written(load: Any) -> None:
    numpy = pytest.importorskip("numpy")
    file = io.BytesIO()
    numpy.save(file, numpy.arange(6, dtype="float32").reshape(2, 3))
    answer = ask(load(ECHO), file.getvalue(), content.NPY, content.NPY)
    array = numpy.load(io.BytesIO(answer.body))
    assert (answer.content_type, array.dtype, array.tolist()) == (content.NPY, "float32", [[0, 1, 2], [3, 4, 5]])


def test_pickled_array_is_refused(load: Any) -> None:
    numpy = pytest.importorskip("numpy")
    file = io.BytesIO()
    numpy.save(file, numpy.array([{"an": "object"}]), allow_pickle=True)
    assert ask(load(ECHO), file.getvalue(), content.NPY).status == 400


@pytest.mark.parametrize(
    ("kind", "accept", "what"),
    [("image/png", "", "Content type image/png"), ("application/json", "image/png", "Accept type image/png")],
)
def test_unsupported_type_is_refused_with_supported_types(load: Any, kind: str, accept: str, what: str) -> None:
    answer = ask(load(ECHO), "[1]", kind, accept)
    assert answer.status == 415
    assert answer.body.decode().startswith(f"{what} is not supported. Supported types: application/json, text/csv")


@pytest.mark.parametrize(("kind", "body"), [("application/json", b"{"), ("text/csv", b"\xff"), (content.NPY, b"x")])
def test_body_that_is_not_of_its_type_is_refused(load: Any, kind: str, body: bytes) -> None:
    if kind == content.NPY:
        pytest.importorskip("numpy")
    answer = ask(load(ECHO), body, kind)
    assert answer.status == 400
    assert answer.body.decode().startswith(f"The body is not {kind}: ")


def test_own_functions_replace_the_defaults_and_get_text(load: Any) -> None:
    handlers = load(
        """
        def model_fn(model_dir): return 3
        def input_fn(body, content_type): return [type(body).__name__, content_type]
        def predict_fn(data, model): return data * model
        def output_fn(prediction, accept): return "|".join(prediction), "text/plain"
        """
    )
    answer = ask(handlers, "[1]")
    assert (answer.body, answer.content_type) == (b"|".join([b"str", b"application/json"] * 3), "text/plain")
    assert b"bytes" in ask(handlers, b"\0", "image/png").body


def test_transform_fn_replaces_the_other_functions(load: Any) -> None:
    handlers = load(
        """
        def model_fn(model_dir): return "m"
        def transform_fn(model, data, content_type, accept): return f"{model} {data} {content_type} {accept}"
        """
    )
    answer = ask(handlers, b"x", "text/plain", "text/html")
    assert (answer.body, answer.content_type) == (b"m b'x' text/plain text/html", "text/html")


def test_functions_with_context_get_headers_and_set_content_type(load: Any) -> None:
    handlers = load(
        """
        def model_fn(model_dir, context): return context.system_properties["model_dir"]
        def input_fn(body, content_type, context): return context.get_request_header("X-Own")
        def predict_fn(data, model, context):
            return [data, model, context.get_request_header(0, "accept")]
        def output_fn(prediction, accept, context):
            context.set_response_content_type(0, "text/own")
            return ",".join(prediction)
        """
    )
    answer = ask(handlers, "1", accept="text/html", x_own="mine")
    assert answer.body.startswith(b"mine,/")
    assert answer.body.endswith(b",text/html")
    assert answer.content_type == "text/own"


def test_context_sets_the_status_and_headers_of_one_answer(load: Any) -> None:
    handlers = load(
        """
        def model_fn(model_dir): return 0
        def predict_fn(data, model, context):
            if data == "torchserve":
                context.set_response_status(code=422, phrase="no faces", idx=0)
                context.set_response_header(0, "X-Own", 3)
            elif data == "processor":
                context.request_processor[0].report_status(422, reason_phrase="no faces")
                context.request_processor[0].add_response_property("x-own", "3")
            return [context.get_request_id(0) != "", context.get_response_status(0)[0]]
        """
    )
    for data in ("torchserve", "processor"):
        answer = ask(handlers, json.dumps(data))
        assert (answer.status, answer.headers["x-own"], json.loads(answer.body)) == (422, "3", [True, 422])
    plain = ask(handlers, '"plain"')
    assert (plain.status, plain.headers) == (200, {})


@pytest.mark.parametrize("call", ["set_response_status(99)", "set_response_header(0, 'X: a', 'b')"])
def test_status_or_header_that_http_does_not_have_fails_the_function(load: Any, call: str) -> None:
    script = f"def model_fn(d): return 0\ndef predict_fn(data, model, context): context.{call}\n"
    answer = ask(load(script), "1")
    assert (answer.status, b"predict_fn failed: ValueError" in answer.body) == (500, True)


def test_optional_parameter_of_a_function_is_not_the_context(load: Any) -> None:
    handlers = load("def model_fn(d): return 1\ndef predict_fn(data, model, threshold=0.5): return threshold\n")
    assert ask(handlers, "1").body == b"0.5"


@pytest.mark.parametrize(("status", "expected"), [("429", 429), ("'x'", 500), ("200", 500), ("True", 500)])
def test_exception_may_have_a_status_of_its_own(load: Any, status: str, expected: int) -> None:
    handlers = load(
        f"""
        class Mine(Exception):
            status_code = {status}
        def model_fn(d): return 1
        def predict_fn(data, model): raise Mine("slow down")
        """
    )
    answer = ask(handlers, "1")
    assert (answer.status, answer.body) == (expected, b"predict_fn failed: Mine: slow down")


@pytest.mark.parametrize("function", ["input_fn(body, content_type)", "output_fn(prediction, accept)"])
def test_unsupported_type_of_a_script_gets_the_status_of_the_defaults(load: Any, function: str) -> None:
    """The toolkit's own exception has no status, and is known by its name: a script may have one of its own."""
    handlers = load(
        f"""
        class UnsupportedFormatError(Exception):
            def __init__(self, content_type):
                super().__init__(f"Content type {{content_type}} is not supported by this framework.\\n\\nMore.")
        class Mine(UnsupportedFormatError):
            pass
        def model_fn(d): return 1
        def predict_fn(data, model): return data
        def {function}: raise Mine("image/png")
        """
    )
    answer = ask(handlers, "1")
    name = function.partition("(")[0]
    reason = f"{name} failed: Mine: Content type image/png is not supported by this framework."
    assert (answer.status, answer.body.decode()) == (415, reason)


def test_error_of_the_toolkit_is_answered_with_its_status_and_message(load: Any) -> None:
    """An exception with the attributes of ``sagemaker_inference.errors.BaseInferenceToolkitError``."""
    handlers = load(
        """
        class BaseInferenceToolkitError(Exception):
            def __init__(self, status_code, message, phrase):
                self.status_code, self.message, self.phrase = status_code, message, phrase
                super().__init__(status_code, message, phrase)
        def model_fn(d): return 1
        def predict_fn(data, model): raise BaseInferenceToolkitError(422, "no digits", "Unprocessable")
        """
    )
    answer = ask(handlers, "1")
    assert (answer.status, answer.body) == (422, b"predict_fn failed: BaseInferenceToolkitError: no digits")


def test_script_that_exits_during_a_request_gives_an_error(load: Any) -> None:
    answer = ask(load("import sys\ndef model_fn(d): return 1\ndef predict_fn(x, m): sys.exit(3)\n"), "1")
    assert (answer.status, answer.body) == (500, b"predict_fn failed: SystemExit: 3")


def test_model_with_method_predict_needs_no_predict_fn(load: Any) -> None:
    handlers = load(
        """
        class Model:
            def predict(self, data): return [sum(row) for row in data]
        def model_fn(d): return Model()
        """
    )
    assert json.loads(ask(handlers, "[[1, 2], [3, 4]]").body) == [3, 7]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("def model_fn(d): return 1\n", "the default predict_fn failed: TypeError: the model is a int"),
        (
            "def model_fn(d): return 1\ndef predict_fn(x, m): return object()\n",
            "the default output_fn failed: TypeError: a prediction of the type object needs an output_fn",
        ),
    ],
)
def test_default_that_cannot_work_names_the_function_to_write(load: Any, script: str, reason: str) -> None:
    answer = ask(load(script), "1")
    assert answer.status == 500
    assert answer.body.decode().startswith(reason)


def test_model_without_script_and_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="the model defines no model_fn"):
        Handlers(None, tmp_path, content.JSON).load()


@pytest.mark.torch
def test_torchscript_model_needs_no_script_and_is_in_evaluation_mode(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(0.9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(model.train()).save(str(tmp_path / "model.pt"))
    handlers = Handlers(None, tmp_path, content.JSON)
    handlers.load()
    expected = model.eval()(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).flatten().tolist()
    for kind, body in ((content.JSON, "[[1, 2], [3, 4]]"), (content.CSV, "1,2\n3,4\n")):
        assert [one for (one,) in json.loads(ask(handlers, body, kind).body)] == pytest.approx(expected)


@pytest.mark.torch
@pytest.mark.runs
def test_exported_program_needs_no_script(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(model, (data,)), tmp_path / "model.pt2")
        handlers = Handlers(None, tmp_path, content.JSON)
        handlers.load()
        answer = json.loads(ask(handlers, "[[1, 2], [3, 4]]").body)
    assert [one for (one,) in answer] == pytest.approx(model(data).flatten().tolist())


@pytest.mark.torch
def test_state_of_a_model_is_no_torchscript_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 1).state_dict(), tmp_path / "model.pt")
    with pytest.raises(ProgramError, match=r"model\.pt is no TorchScript file.* Define model_fn"):
        Handlers(None, tmp_path, content.JSON).load()


@pytest.mark.torch
def test_torch_module_of_a_script_predicts_without_predict_fn(load: Any) -> None:
    pytest.importorskip("torch")
    handlers = load("import torch\ndef model_fn(d): return torch.nn.Flatten(0)\n")
    assert json.loads(ask(handlers, "[[1, 2], [3, 4]]").body) == [1, 2, 3, 4]


@pytest.mark.torch
def test_import_of_torch_by_a_request_changes_no_later_request(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "torch")
    handlers = load("def model_fn(d): return 0\ndef predict_fn(data, model): return type(data).__name__\n")
    first = ask(handlers, "[1, 2]")
    monkeypatch.setitem(sys.modules, "torch", torch)  # as an import in predict_fn does
    assert (first.body, ask(handlers, "[1, 2]").body) == (b'"ndarray"', b'"ndarray"')


@pytest.mark.torch
@pytest.mark.parametrize("kind", [content.JSON, content.CSV, content.NPY])
def test_predict_fn_without_input_fn_gets_a_tensor(load: Any, kind: str) -> None:
    """As in AWS's PyTorch container, which runs the same script."""
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("torch")
    handlers = load(
        """
        import torch
        def model_fn(d): return torch.nn.Linear(2, 1)
        def predict_fn(data, model):
            if data.dtype == torch.float32:
                model(data)
            return [str(data.dtype), list(data.shape)]
        """
    )
    file = io.BytesIO()
    numpy.save(file, numpy.array([[1, 2], [3, 4]], dtype="int64"))
    body = {content.JSON: b"[[1, 2], [3, 4]]", content.CSV: b"1,2\n3,4\n", content.NPY: file.getvalue()}[kind]
    dtype = "torch.int64" if kind == content.NPY else "torch.float32"
    answer = ask(handlers, body, kind)
    assert (answer.status, json.loads(answer.body)) == (200, [dtype, [2, 2]])
