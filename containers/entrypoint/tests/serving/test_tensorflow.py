"""SavedModels, and scripts for SageMaker's TensorFlow Serving container."""

from __future__ import annotations

import base64
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.serving import content
from smdp_entrypoint.serving.handlers import Handlers
from smdp_entrypoint.serving.messages import Request, Response

HANDLERS = """
    import json
    def input_handler(data, context):
        if context.request_content_type != "text/x-own":
            return data.read()
        return json.dumps({"instances": [float(one) for one in data.read().decode().split(";")]})
    def output_handler(response, context):
        if not response.ok:
            raise ValueError(response.text)
        return ";".join(str(one) for one in response.json()["predictions"]), "text/x-own"
"""
#: As scripts that send their own requests: several to one model, with the standard library.
HANDLER = """
    import json, urllib.error, urllib.request
    def handler(data, context):
        answers = []
        for one in json.load(data):
            request = urllib.request.Request(context.rest_uri, json.dumps({"instances": [one]}).encode())
            try:
                with urllib.request.urlopen(request) as response:
                    answers += json.load(response)["predictions"]
            except urllib.error.HTTPError as error:
                answers.append(error.code)
        return json.dumps(answers), context.accept_header
"""


def handlers_of(folder: Path, script: str | None) -> Handlers:
    path = folder / "inference.py"
    if script is not None:
        path.write_text(textwrap.dedent(script), encoding="utf-8")
    return Handlers(path if script is not None else None, folder / "model", content.JSON)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a model in two versions: one input, and in version 2 also a signature with two of both."""
    tensorflow = pytest.importorskip("tensorflow")

    class Model(tensorflow.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = tensorflow.Variable(factor)

        @tensorflow.function(input_signature=[tensorflow.TensorSpec((None,), tensorflow.float32, name="x")])
        def scale(self, x: Any) -> Any:
            return {"y": x * self.factor}

        @tensorflow.function(
            input_signature=[
                tensorflow.TensorSpec((None, 2), tensorflow.int32, name="numbers"),
                tensorflow.TensorSpec((None,), tensorflow.string, name="texts"),
            ]
        )
        def both(self, numbers: Any, texts: Any) -> Any:
            return {"sum": tensorflow.reduce_sum(numbers, axis=1), "raw_bytes": texts, "texts": texts}

    folder = tmp_path_factory.mktemp("saved")
    for version, factor in ((1, 10.0), (2, 2.0)):
        model = Model(factor)
        place = str(folder / "model" / str(version))
        tensorflow.saved_model.save(model, place, signatures={"serving_default": model.scale, "both": model.both})
    return folder


def ask(handlers: Handlers, body: Any, kind: str = content.JSON, attributes: str = "") -> Response:
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {"content-type": kind, "x-amzn-sagemaker-custom-attributes": attributes}
    return handlers.answer(Request(data, headers))


@pytest.fixture(scope="module")
def plain(saved: Path) -> Handlers:
    """The model without a script."""
    handlers = handlers_of(saved, None)
    handlers.load()
    return handlers


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("body", "kind", "answer"),
    [
        ({"instances": [1, 2.5]}, content.JSON, {"predictions": [2, 5]}),
        ({"instances": [{"x": 1}, {"x": 3}]}, content.JSON, {"predictions": [2, 6]}),
        ({"inputs": [1, 2]}, content.JSON, {"outputs": [2, 4]}),
        ({"inputs": {"x": [4]}}, content.JSON, {"outputs": [8]}),
        ("5", content.JSON, {"predictions": [10]}),
        ("1\n2\n", "application/jsonlines", {"predictions": [2, 4]}),
        ("1\n2\n", content.CSV, {"predictions": [2, 4]}),
    ],
)
def test_model_without_script_answers_as_tensorflow_serving(plain: Handlers, body: Any, kind: str, answer: Any) -> None:
    given = ask(plain, body, kind)
    assert (given.status, json.loads(given.body), given.content_type) == (200, answer, content.JSON)


@pytest.mark.tensorflow
def test_signature_with_several_inputs_and_outputs_takes_texts_and_bytes(plain: Handlers) -> None:
    raw = base64.b64encode(b"\xff\0").decode()
    rows = [{"numbers": [1, 2], "texts": "a"}, {"numbers": [3, 4], "texts": {"b64": raw}}]
    given = json.loads(ask(plain, {"signature_name": "both", "instances": rows}).body)["predictions"]
    assert [one["sum"] for one in given] == [3, 7]
    assert given[0]["texts"] == "a"
    assert given[1]["raw_bytes"] == {"b64": raw}
    columns = {"signature_name": "both", "inputs": {"numbers": [[1, 2]], "texts": ["a"]}}
    assert json.loads(ask(plain, columns).body)["outputs"]["sum"] == [3]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"instances": []}, 400, "must be a list with at least one element"),
        ({"instances": [1], "inputs": [1]}, 400, "either"),
        ({"instances": ["a"]}, 400, "The input x is no tensor of the type float32"),
        ({"instances": [[1, 2]]}, 400, "The input x has the shape (1, 2); the model needs (None,)."),
        ({"instances": [{"x": 1}, {}]}, 400, "different keys"),
        ({"instances": [{"z": 1}]}, 400, "The signature has the inputs x."),
        ({"instances": [1], "signature_name": "none"}, 400, "There is no signature none; the model has "),
    ],
)
def test_request_that_does_not_fit_the_model_is_refused_with_reason(
    plain: Handlers, body: Any, status: int, reason: str
) -> None:
    given = ask(plain, body)
    assert (given.status, reason in json.loads(given.body)["error"]) == (status, True), given.body
    assert ask(plain, {"instances": [1]}).status == 200


@pytest.mark.tensorflow
def test_body_and_type_that_no_script_reads_are_refused(plain: Handlers) -> None:
    assert ask(plain, "{").status == 400
    given = ask(plain, b"x", "image/png")
    assert given.status == 415
    assert given.body == (
        b"Content type image/png is not supported. Supported types: application/json, application/jsonlines, "
        b"application/jsons, text/csv."
    )


@pytest.mark.tensorflow
def test_attributes_of_the_request_select_a_version(plain: Handlers) -> None:
    def predictions(attributes: str) -> Any:
        return json.loads(ask(plain, {"instances": [1]}, attributes=attributes).body)

    assert predictions("tfs-model-version=1") == {"predictions": [10]}
    assert predictions("tfs-model-name=model,tfs-model-version=2") == {"predictions": [2]}
    assert predictions("tfs-model-version=3") == {"error": "There is no model model 3."}
    assert predictions("tfs-method=classify") == {"error": "The method classify is not supported: use predict."}


@pytest.mark.tensorflow
def test_handlers_of_a_script_surround_the_model(saved: Path) -> None:
    handlers = handlers_of(saved, HANDLERS)
    handlers.load()
    given = ask(handlers, b"1;2.5", "text/x-own")
    assert (given.status, given.body, given.content_type) == (200, b"2.0;5.0", "text/x-own")
    refused = ask(handlers, {"instances": ["a"]})
    assert refused.status == 500
    assert refused.body.startswith(b"output_handler failed: ValueError: ")


@pytest.mark.tensorflow
def test_handler_of_a_script_sends_its_own_requests(saved: Path) -> None:
    handlers = handlers_of(saved, HANDLER)
    handlers.load()
    assert json.loads(ask(handlers, [1, 2.5, "a"]).body) == [2, 5, 400]


@pytest.mark.tensorflow
def test_request_that_is_no_text_is_an_error_of_the_script(saved: Path) -> None:
    handlers = handlers_of(
        saved, "def input_handler(d, c): return {}\ndef output_handler(r, c): return r.content, ''\n"
    )
    handlers.load()
    given = ask(handlers, "1")
    assert given.status == 500
    assert b"it returned a dict, but the model needs JSON as text" in given.body


@pytest.mark.tensorflow
def test_function_of_the_toolkit_loads_the_model_itself(saved: Path) -> None:
    script = """
        import tensorflow
        def model_fn(model_dir): return tensorflow.saved_model.load(model_dir + "/2").signatures["serving_default"]
        def predict_fn(data, model): return model(x=tensorflow.constant(data, tensorflow.float32))["y"].numpy()
    """
    handlers = handlers_of(saved, script)
    handlers.load()
    assert json.loads(ask(handlers, "[1, 2]").body) == [2, 4]


@pytest.mark.tensorflow
def test_file_that_is_no_saved_model_ends_the_container_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    (tmp_path / "model" / "1" / "saved_model.pb").write_bytes(b"\xff nonsense")
    with pytest.raises(ProgramError, match=r"model/1 cannot be loaded: "):
        handlers_of(tmp_path, None).load()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "def input_handler(data, context): pass",
            "The script defines input_handler without output_handler: define both",
        ),
        (
            "def output_handler(r, context): pass",
            "The script defines output_handler without input_handler: define both",
        ),
        (
            HANDLERS,
            r"contains no SavedModel, which the script's handlers are for: save it as .*model/1/saved_model\.pb",
        ),
    ],
)
def test_script_with_handlers_that_cannot_serve_is_refused(script: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ProgramError, match=reason):
        handlers_of(tmp_path, script).load()


def test_default_model_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model" / "half" / "12").mkdir(parents=True)
    (tmp_path / "model" / "half" / "12" / "saved_model.pb").touch()
    monkeypatch.setenv("SAGEMAKER_TFS_DEFAULT_MODEL_NAME", "whole")
    with pytest.raises(ProgramError, match="SAGEMAKER_TFS_DEFAULT_MODEL_NAME is whole; the models are half"):
        handlers_of(tmp_path, None).load()
