"""Jobs of a service, and the environment of the commands that ask it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.jobs.records.history import STATE_FOLDER
from smdp_launch.localcloud.client.connect import Endpoint, private
from tests.conftest import clean_environment
from tests.support.services.cloud import ENDED, Cloud, as_the_service, client_of
from tests.support.services.faults import Proxy
from tests.support.waiting import wait_for


def environment(cloud: Cloud, proxy: Proxy, home: Path, access_key: str) -> dict[str, str]:
    """An environment with credentials in a file, and ``cloud`` behind ``proxy`` in place of AWS."""
    write_credentials(home, access_key, cloud.endpoint.secret_key)
    return clean_environment(
        HOME=str(home),
        AWS_ENDPOINT_URL=cloud.endpoint.url,
        HTTP_PROXY=proxy.url,
        http_proxy=proxy.url,
        NO_PROXY="",
        no_proxy="",
    )


def write_credentials(home: Path, access_key: str, secret_key: str) -> None:
    folder = home / ".aws"
    folder.mkdir(exist_ok=True)
    made = folder / "made"
    made.write_text(f"[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n")
    made.replace(folder / "credentials")


def name_of(folder: Path) -> str:
    line = (folder / STATE_FOLDER / "history.jsonl").read_text().splitlines()[-1]
    return str(json.loads(line)["job"])


def await_end(cloud: Endpoint, job: str) -> None:
    """Lines of a job of ``service``, without the gaps of a follower."""
    state = cloud.state_dir / "jobs" / job / "state.json"
    wait_for(lambda: json.loads(state.read_text())["status"] in ENDED, f"the end of {job}")


@pytest.fixture(scope="module")
def service_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with private(tmp_path_factory.mktemp("service") / "cloud") as endpoint:
        s3 = client_of(endpoint, "s3")
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        yield endpoint


@pytest.fixture
def service(service_cloud: Endpoint, tmp_path: Path) -> dict[str, str]:
    """An environment in which a local cloud takes the place of AWS."""
    return as_the_service(service_cloud, tmp_path)
