"""The SageMaker SDK deploys models to the local cloud, with only the environment variables that point to it.

`make test-clients` makes the SDK's environment and runs this there. `deploy(wait=True)` looks for the endpoint every 30
seconds, so most tests wait for it themselves.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from smdp_launch.testing import LocalCloud, local_cloud
from tests.support.waiting import wait_for

# Ignore the SDK's own warnings.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

SERVES = """\
import os

def model_fn(model_dir):
    with open(os.path.join(model_dir, "factor.txt")) as file:
        return float(file.read())

def predict_fn(data, model):
    return data * model
"""
TRAINS = f"""\
import os
folder = os.environ["SM_MODEL_DIR"]
with open(os.path.join(folder, "factor.txt"), "w") as file:
    file.write("3")
os.mkdir(os.path.join(folder, "code"))
with open(os.path.join(folder, "code", "inference.py"), "w") as file:
    file.write({SERVES!r})
"""


@pytest.fixture
def cloud() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="mine")
        yield made


def session() -> Any:
    from sagemaker.session import Session

    return Session(default_bucket="mine")


def put_model(factor: int) -> str:
    """Upload a model without code; its address."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("factor.txt")
        entry.size = len(str(factor))
        tar.addfile(entry, io.BytesIO(str(factor).encode()))
    boto3.client("s3").put_object(Bucket="mine", Key=f"{factor}/model.tar.gz", Body=packed.getvalue())
    return f"s3://mine/{factor}/model.tar.gz"


def pytorch_model(cloud: LocalCloud, folder: Path, factor: int, script: str = SERVES) -> Any:
    from sagemaker.pytorch import PyTorchModel

    source = folder / f"src-{factor}"
    source.mkdir()
    (source / "inference.py").write_text(script)
    return PyTorchModel(
        model_data=put_model(factor),
        role=cloud.role,
        entry_point="inference.py",
        source_dir=str(source),
        framework_version="2.0.1",
        py_version="py310",
        env={"SAGEMAKER_MODEL_SERVER_WORKERS": "1"},
        sagemaker_session=session(),
    )


def in_service(name: str) -> dict[str, Any]:
    def settled() -> dict[str, Any] | None:
        found: dict[str, Any] = boto3.client("sagemaker").describe_endpoint(EndpointName=name)
        return found if found["EndpointStatus"] in ("InService", "Failed") else None

    found = wait_for(settled, f"endpoint {name} to be in service")
    assert found["EndpointStatus"] == "InService", found.get("FailureReason")
    return found  # type: ignore[no-any-return]


def test_estimator_trains_deploys_and_predicts(cloud: LocalCloud, tmp_path: Path) -> None:
    from sagemaker.deserializers import JSONDeserializer
    from sagemaker.estimator import Estimator
    from sagemaker.serializers import JSONSerializer

    (tmp_path / "train.py").write_text(TRAINS)
    estimator = Estimator(
        image_uri="image",
        role=cloud.role,
        instance_count=1,
        instance_type="ml.p4d.24xlarge",
        entry_point="train.py",
        source_dir=str(tmp_path),
        output_path="s3://mine/output",
        code_location="s3://mine/code",
        environment={"SMDP_WORKERS_PER_HOST": "1"},
        sagemaker_session=session(),
    )
    estimator.fit(logs=False)
    predictor = estimator.deploy(1, "ml.m5.large", serializer=JSONSerializer(), deserializer=JSONDeserializer())
    assert predictor.predict([1, 2.5]) == [3, 7.5]
    predictor.delete_model()
    predictor.delete_endpoint()
    assert boto3.client("sagemaker").list_models()["Models"] == []
    assert boto3.client("sagemaker").list_endpoint_configs()["EndpointConfigs"] == []


def test_framework_model_is_repacked_with_its_script_and_predicts(cloud: LocalCloud, tmp_path: Path) -> None:
    """The predictor sends and receives arrays of numpy."""
    import numpy

    predictor = pytorch_model(cloud, tmp_path, 4).deploy(2, "ml.m5.large", endpoint_name="four", wait=False)
    described = in_service("four")
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 2
    answer = predictor.predict(numpy.array([[1.0, 2.0], [3.0, 4.0]]))
    assert answer.tolist() == [[4, 8], [12, 16]]


def test_endpoint_is_updated_to_another_model(cloud: LocalCloud, tmp_path: Path) -> None:
    import numpy

    predictor = pytorch_model(cloud, tmp_path, 2).deploy(1, "ml.m5.large", endpoint_name="changed", wait=False)
    in_service("changed")
    assert predictor.predict(numpy.array([1.0])).tolist() == [2]
    other = pytorch_model(cloud, tmp_path, 5)
    other.create(instance_type="ml.m5.large")
    predictor.update_endpoint(initial_instance_count=1, instance_type="ml.m5.large", model_name=other.name, wait=False)
    in_service("changed")
    assert predictor.predict(numpy.array([1.0])).tolist() == [5]


def test_model_that_cannot_be_served_is_reported_with_its_reason(cloud: LocalCloud, tmp_path: Path) -> None:
    from sagemaker.exceptions import UnexpectedStatusException

    model = pytorch_model(cloud, tmp_path, 6, "raise ValueError('no such luck')")
    with pytest.raises(UnexpectedStatusException, match="no such luck") as failed:
        model.deploy(1, "ml.m5.large")
    assert failed.value.actual_status == "Failed"


def test_transformer_writes_answers_beside_the_model(cloud: LocalCloud, tmp_path: Path) -> None:
    boto3.client("s3").put_object(Bucket="mine", Key="in/a.csv", Body=b"1,2\n3,4\n")
    transformer = pytorch_model(cloud, tmp_path, 8).transformer(
        instance_count=1,
        instance_type="ml.m5.large",
        output_path="s3://mine/out",
        strategy="SingleRecord",
        max_payload=50,
        max_concurrent_transforms=2,
        assemble_with="Line",
        accept="text/csv",
    )
    transformer.transform("s3://mine/in/", content_type="text/csv", split_type="Line", wait=True, logs=False)
    answer = boto3.client("s3").get_object(Bucket="mine", Key="out/a.csv.out")["Body"].read()
    assert answer == b"8.0\n16.0\n24.0\n32.0\n"


def test_asynchronous_predictor_gets_its_answer_from_s3(cloud: LocalCloud, tmp_path: Path) -> None:
    import numpy
    from sagemaker.async_inference import AsyncInferenceConfig, WaiterConfig

    config = AsyncInferenceConfig(output_path="s3://mine/answers", failure_path="s3://mine/errors")
    predictor = pytorch_model(cloud, tmp_path, 9).deploy(
        1, "ml.m5.large", endpoint_name="later", async_inference_config=config, wait=False
    )
    in_service("later")
    answer = predictor.predict_async(numpy.array([1.0, 2.0]), input_path="s3://mine/in/array.npy")
    assert answer.get_result(WaiterConfig(max_attempts=60, delay=1)).tolist() == [9, 18]


def test_exception_in_the_script_is_a_model_error(cloud: LocalCloud, tmp_path: Path) -> None:
    import numpy

    script = "def model_fn(d): return None\ndef predict_fn(x, m): raise ValueError('bad data')\n"
    predictor = pytorch_model(cloud, tmp_path, 7, script).deploy(1, "ml.m5.large", endpoint_name="raising", wait=False)
    in_service("raising")
    with pytest.raises(predictor.sagemaker_session.sagemaker_runtime_client.exceptions.ModelError, match="bad data"):
        predictor.predict(numpy.array([1.0]))
