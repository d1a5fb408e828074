"""Push and inspect with a real registry behind the local cloud's ECR."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from smdp_launch.localcloud.client.connect import Endpoint, private
from tests.images.base import buildah
from tests.images.conftest import launcher
from tests.support.services.cloud import client_of, names_in, processes_with

pytestmark = [pytest.mark.images, pytest.mark.timeout(1800)]  # the first to ask for the image builds it
Tiny = Callable[..., str]
NAME = "smdp-test-tiny"


def aws(endpoint: Endpoint) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint.url,
        "AWS_ACCESS_KEY_ID": endpoint.access_key,
        "AWS_SECRET_ACCESS_KEY": endpoint.secret_key,
        "AWS_DEFAULT_REGION": endpoint.region,
    }


def password(endpoint: Endpoint) -> str:
    data = client_of(endpoint, "ecr").get_authorization_token()["authorizationData"][0]
    return base64.b64decode(data["authorizationToken"]).decode().partition(":")[2]


def push(endpoint: Endpoint, *arguments: str) -> subprocess.CompletedProcess[str]:
    return launcher("image", "push", "--tool", "buildah", *arguments, **aws(endpoint))


def inspect(endpoint: Endpoint, uri: str) -> subprocess.CompletedProcess[str]:
    return launcher("image", "inspect", uri, "--user", "AWS", "--json", text=password(endpoint))


def test_repository_is_created_only_with_create(registry_cloud: Endpoint, tiny: Tiny) -> None:
    image = tiny(f"{NAME}:1")
    refused = push(registry_cloud, image)
    assert refused.returncode == 6
    assert "--create" in refused.stderr
    ecr = client_of(registry_cloud, "ecr")
    assert ecr.describe_repositories()["repositories"] == []
    pushed = push(registry_cloud, image, "--create")
    assert pushed.returncode == 0, pushed.stderr
    uri = pushed.stdout.strip()
    assert uri == f"{ecr.describe_repositories()['repositories'][0]['repositoryUri']}:1"
    details = ecr.describe_images(repositoryName=NAME)["imageDetails"]
    assert [one["imageTags"] for one in details] == [["1"]]
    assert details[0]["imageDigest"] == json.loads(inspect(registry_cloud, uri).stdout)["digest"]


def test_existing_tag_is_not_pushed(registry_cloud: Endpoint, tiny: Tiny) -> None:
    image = tiny(f"{NAME}:1")
    first = push(registry_cloud, image, "--create")
    again = push(registry_cloud, image, "--create")
    assert again.returncode == 0
    assert again.stdout == first.stdout
    assert "already" in again.stderr
    assert "Copying" not in again.stderr
    assert "Copying" in push(registry_cloud, image, "--again").stderr


def test_other_image_of_an_existing_tag_is_refused(registry_cloud: Endpoint, tiny: Tiny) -> None:
    uri = push(registry_cloud, tiny(f"{NAME}:1"), "--create").stdout.strip()
    rebuilt = tiny(f"{NAME}:1", "--env", "CUDA_VERSION=12.1")
    refused = push(registry_cloud, rebuilt)
    assert (refused.returncode, refused.stdout) == (6, "")
    assert f"{uri} exists, and is another image than the local {NAME}:1: add --again" in refused.stderr
    again = push(registry_cloud, rebuilt, "--again")
    assert (again.returncode, again.stdout.strip()) == (0, uri)
    assert push(registry_cloud, rebuilt).returncode == 0


def test_image_for_arm64_is_refused(registry_cloud: Endpoint, tiny: Tiny) -> None:
    refused = push(registry_cloud, tiny(f"{NAME}:1", "--arch", "arm64"), "--create")
    assert refused.returncode == 6
    assert f"{NAME}:1 is for arm64, and SageMaker's hosts need amd64" in refused.stderr


def test_login_is_not_saved(registry_cloud: Endpoint, tiny: Tiny, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    before = names_in("/tmp")
    secret = password(registry_cloud)
    image = tiny(f"{NAME}:1")
    ran = launcher("image", "push", "--tool", "buildah", image, "--create", **aws(registry_cloud), HOME=str(home))
    assert ran.returncode == 0, ran.stderr
    assert secret not in ran.stdout + ran.stderr
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert [
        path for path in kept if secret.encode() in path.read_bytes() or path.name in ("config.json", "auth.json")
    ] == []
    assert [name for name in names_in("/tmp") - before if name.startswith("smdp-login-")] == []


def test_missing_local_image_is_reported(registry_cloud: Endpoint) -> None:
    ran = push(registry_cloud, "smdp-test-none:1", "--create")
    assert ran.returncode == 4
    assert "buildah has no image smdp-test-none:1" in ran.stderr


def test_push_without_credentials_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1"}
    ran = launcher("image", "push", "--tool", "buildah", tiny(f"{NAME}:1"), **environment)
    assert ran.returncode == 4
    assert "no AWS credentials were found" in ran.stderr


@pytest.mark.parametrize(
    ("settings", "says", "cuda"),
    [
        (["--env", "CUDA_VERSION=11.8.0"], "fits", "11.8"),
        (["--env", "CUDA_VERSION=12.1.1"], "refused", "12.1"),
        (["--env", "NVIDIA_REQUIRE_CUDA=cuda>=11.3 brand=tesla"], "fits", "11.3"),
        (["--label", "smdp.cuda=11.8", "--env", "CUDA_VERSION=12.1"], "fits", "11.8"),
        ([], "unknown", None),
    ],
)
def test_inspect_shows_verdict_of_rule(
    registry_cloud: Endpoint, tiny: Tiny, settings: list[str], says: str, cuda: str | None
) -> None:
    uri = push(registry_cloud, tiny(f"{NAME}:1", *settings), "--create", "--again").stdout.strip()
    ran = inspect(registry_cloud, uri)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["rule"]["says"] == says
    assert (found["cuda"] or {}).get("value") == cuda
    assert found["rule"]["code"] == "SMDP303"


def test_inspect_shows_contents_of_built_image(registry_cloud: Endpoint, image: str) -> None:
    pushed = push(registry_cloud, image, "--create")
    assert pushed.returncode == 0, pushed.stderr
    found = json.loads(inspect(registry_cloud, pushed.stdout.strip()).stdout)
    labels = json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"]["Labels"]
    assert found["labels"] == labels
    assert found["framework"]["value"] == "pytorch 2.13.0"
    assert found["engine"]["value"] == labels["smdp.engine"]
    assert found["command"] == ["train"]
    assert found["platform"] == "linux/amd64"
    assert found["size"] > 100_000_000
    assert found["environment"]["PATH"].startswith("/opt/smdp/bin:")
    buildah("rmi", pushed.stdout.strip())


def test_inspect_reports_errors(registry_cloud: Endpoint, tiny: Tiny) -> None:
    uri = push(registry_cloud, tiny(f"{NAME}:1"), "--create").stdout.strip()
    absent = inspect(registry_cloud, uri.removesuffix("1") + "2")
    assert (absent.returncode, json.loads(absent.stdout)["exit_code"]) == (5, 5)
    assert "there is no such image or tag" in absent.stderr
    without_login = launcher("image", "inspect", uri)
    assert without_login.returncode == 5
    assert "--user" in without_login.stderr
    wrong = launcher("image", "inspect", uri, "--user", "AWS", text="wrong\n")
    assert wrong.returncode == 5
    assert "has no permission to read" in wrong.stderr


def test_registry_ends_with_server_and_keeps_images(tiny: Tiny, tmp_path: Path) -> None:
    image = tiny(f"{NAME}:1")
    with private(tmp_path / "cloud") as endpoint:
        assert push(endpoint, image, "--create").returncode == 0
        assert processes_with(str(tmp_path / "cloud" / "registry"))
    assert processes_with(str(tmp_path / "cloud" / "registry")) == []
    with private(tmp_path / "cloud") as endpoint:
        details = client_of(endpoint, "ecr").describe_images(repositoryName=NAME)["imageDetails"]
        assert [one["imageTags"] for one in details] == [["1"]]
