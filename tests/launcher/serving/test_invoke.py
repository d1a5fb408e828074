"""The requests that `invoke` sends."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from botocore.stub import ANY, Stubber

from smdp_launch.errors import Refused
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.request.names import S3Location
from smdp_launch.serving.invoke import check_size, invoke_async
from tests.support.services.cloud import Cloud, client_of
from tests.support.services.faults import Proxy
from tests.support.services.faulty_service import clients_through, cloud_with_data


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("invoke") / "state") as made:
        yield made


@pytest.mark.parametrize(("timeout", "sent"), [(1800, 1800), (0.5, 1), (7200, 3600), (math.inf, 3600)])
def test_asynchronous_request_has_the_accept_type_and_the_time_limit(cloud: Cloud, timeout: float, sent: int) -> None:
    cloud.s3.put_object(Bucket="bucket", Key="answer", Body=b"0.5\n")
    runtime = client_of(cloud.endpoint, "sagemaker-runtime")
    expected = {"EndpointName": "one", "InputLocation": ANY, "ContentType": "text/csv", "Accept": "text/csv"}
    with Proxy(lambda *_: None).running() as proxy, Stubber(runtime) as stub:
        answer = {"OutputLocation": "s3://bucket/answer"}
        stub.add_response("invoke_endpoint_async", answer, expected | {"InvocationTimeoutSeconds": sent})
        clients: Clients = clients_through(proxy, cloud)
        clients.service = lambda _: runtime  # type: ignore[method-assign]
        inputs = S3Location.parse("s3://bucket/requests")
        assert invoke_async(clients, "one", b"1\n", "text/csv", inputs, timeout, "text/csv").body == b"0.5\n"
        stub.assert_no_pending_responses()


def test_too_large_request_is_refused_with_both_sizes() -> None:
    """One byte more than 6 MiB, which would be shown as the limit itself in MB."""
    with pytest.raises(Refused, match=r"has 6,291,457 bytes, and a realtime endpoint accepts 6,291,456 bytes"):
        check_size("realtime", bytes((6 << 20) + 1))
