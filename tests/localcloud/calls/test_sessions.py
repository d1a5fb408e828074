"""Temporary keys from AssumeRole and GetSessionToken, and the denials of a session's role."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.httpsession import URLLib3Session

from smdp_launch.localcloud.protocol import sessions
from smdp_launch.localcloud.protocol.sessions import Session
from smdp_launch.localcloud.protocol.signatures import Credentials
from tests.support.services.cloud import BUCKET, Cloud, client_of

ROLE = "arn:aws:iam::000000000000:role/training"
ACCOUNT = 'roles: {training: {denied: ["sagemaker:Create*", "iam:*"]}, other: {}}\n'


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Iterator[Cloud]:
    path = shared_cloud.state_dir / "account.yaml"
    path.write_text(ACCOUNT)
    yield shared_cloud
    path.unlink()


def with_keys(cloud: Cloud, keys: dict[str, Any], service: str) -> Any:
    names = {
        "aws_access_key_id": "AccessKeyId",
        "aws_secret_access_key": "SecretAccessKey",
        "aws_session_token": "SessionToken",
    }
    return client_of(cloud.endpoint, service, **{name: keys[key] for name, key in names.items()})


def assumed(cloud: Cloud, **more: Any) -> dict[str, Any]:
    sts = client_of(cloud.endpoint, "sts")
    answer: dict[str, Any] = sts.assume_role(RoleArn=ROLE, RoleSessionName="tests", **more)
    return answer


def test_keys_of_assumed_role_have_its_identity(cloud: Cloud) -> None:
    answer = assumed(cloud)
    user = answer["AssumedRoleUser"]["Arn"]
    assert user == "arn:aws:sts::000000000000:assumed-role/training/tests"
    identity = with_keys(cloud, answer["Credentials"], "sts").get_caller_identity()
    assert (identity["Arn"], identity["UserId"]) == (user, answer["AssumedRoleUser"]["AssumedRoleId"])
    assert abs(answer["Credentials"]["Expiration"].timestamp() - time.time() - 3600) < 300


def test_session_has_denials_of_its_role(cloud: Cloud) -> None:
    keys = assumed(cloud)["Credentials"]
    sagemaker = with_keys(cloud, keys, "sagemaker")
    assert sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    with pytest.raises(ClientError) as caught:
        sagemaker.create_training_job(**cloud.request("denied"))
    error = caught.value.response["Error"]
    assert error["Code"] == "AccessDeniedException"
    assert error["Message"] == (
        "User: arn:aws:sts::000000000000:assumed-role/training/tests is not authorized to perform: "
        "sagemaker:CreateTrainingJob"
    )
    with pytest.raises(ClientError, match=r"\(AccessDenied\)"):
        with_keys(cloud, keys, "iam").list_roles()
    with_keys(cloud, keys, "s3").list_objects_v2(Bucket=BUCKET)


def test_session_has_s3_denials_of_its_role(cloud: Cloud) -> None:
    (cloud.state_dir / "account.yaml").write_text('roles: {training: {denied: ["s3:PutObject"]}}')
    s3 = with_keys(cloud, assumed(cloud)["Credentials"], "s3")
    with pytest.raises(ClientError, match="assumed-role/training/tests is not authorized to perform: s3:PutObject"):
        s3.put_object(Bucket=BUCKET, Key="of-a-session", Body=b"x")
    cloud.s3.put_object(Bucket=BUCKET, Key="of-a-session", Body=b"x")
    assert s3.get_object(Bucket=BUCKET, Key="of-a-session")["Body"].read() == b"x"
    for method, parameters, status in (("get_object", {}, 200), ("put_object", {}, 403)):
        url = s3.generate_presigned_url(method, Params={"Bucket": BUCKET, "Key": "of-a-session", **parameters})
        data = None if method == "get_object" else b"y"
        answer = URLLib3Session().send(AWSRequest("GET" if data is None else "PUT", url, data=data).prepare())
        assert answer.status_code == status, answer.text


def test_keys_of_job_have_denials_of_its_role(cloud: Cloud) -> None:
    (cloud.state_dir / "account.yaml").write_text('denied: ["ec2:*"]\nroles: {training: {denied: ["iam:*"]}}')
    script = """
        import boto3
        from botocore.exceptions import ClientError
        def outcome(call):
            try:
                call()
                return "allowed"
            except ClientError as error:
                return error.response["Error"]["Code"]
        print("is", boto3.client("sts").get_caller_identity()["Arn"])
        print("ec2", outcome(boto3.client("ec2").describe_subnets), "iam", outcome(boto3.client("iam").list_roles))
    """
    job = cloud.run("role-keys", script)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    cloud.await_log("role-keys", "is arn:aws:sts::000000000000:assumed-role/training/SageMaker")
    cloud.await_log("role-keys", "ec2 allowed iam AccessDenied")


def test_session_of_removed_role_may_do_nothing(cloud: Cloud) -> None:
    keys = assumed(cloud)["Credentials"]
    (cloud.state_dir / "account.yaml").write_text("roles: {}")
    with pytest.raises(ClientError, match="AccessDenied"):
        with_keys(cloud, keys, "sagemaker").list_training_jobs()


@pytest.mark.parametrize("arn", ["arn:aws:iam::000000000000:role/unknown", "arn:aws:iam::123456789012:role/training"])
def test_unknown_role_cannot_be_assumed(cloud: Cloud, arn: str) -> None:
    with pytest.raises(ClientError) as caught:
        client_of(cloud.endpoint, "sts").assume_role(RoleArn=arn, RoleSessionName="tests")
    error = caught.value.response["Error"]
    assert error["Code"] == "AccessDenied"
    assert error["Message"].endswith(f"is not authorized to perform: sts:AssumeRole on resource: {arn}")


def test_session_of_caller_has_the_callers_identity(cloud: Cloud) -> None:
    keys = client_of(cloud.endpoint, "sts").get_session_token(DurationSeconds=900)["Credentials"]
    sts = with_keys(cloud, keys, "sts")
    assert sts.get_caller_identity()["Arn"] == "arn:aws:iam::000000000000:user/local"
    with pytest.raises(ClientError, match=r"\(AccessDenied\).*session credentials"):
        sts.get_session_token()


@pytest.mark.parametrize(("service", "code"), [("sagemaker", "ExpiredTokenException"), ("s3", "ExpiredToken")])
def test_expired_keys_are_refused(cloud: Cloud, service: str, code: str) -> None:
    credentials = Credentials(cloud.endpoint.access_key, cloud.endpoint.secret_key)
    keys = dict(sessions.issue(credentials, Session("training", "tests", int(time.time()) - 1)))
    client = with_keys(cloud, keys, service)
    with pytest.raises(ClientError, match=rf"\({code}\)"):
        client.list_training_jobs() if service == "sagemaker" else client.list_objects_v2(Bucket=BUCKET)


@pytest.mark.parametrize("service", ["sagemaker", "s3", "sts"])
@pytest.mark.parametrize("token", [None, "x", Session("other", "tests", 4_000_000_000).token])
def test_session_keys_with_another_token_are_refused(cloud: Cloud, service: str, token: str | None) -> None:
    keys = {**assumed(cloud)["Credentials"], "SessionToken": token}
    client = with_keys(cloud, keys, service)
    calls = {"sagemaker": "list_training_jobs", "s3": "list_buckets", "sts": "get_caller_identity"}
    codes = {"sagemaker": "UnrecognizedClientException", "s3": "InvalidToken", "sts": "InvalidClientTokenId"}
    with pytest.raises(ClientError, match=rf"\({codes[service]}\)"):
        getattr(client, calls[service])()


def test_forged_session_token_is_refused(cloud: Cloud) -> None:
    """The hash in the access key is right, but the secret key belongs to another session."""
    keys = assumed(cloud)["Credentials"]
    guessed = Credentials(cloud.endpoint.access_key, "guessed")
    forged = {
        **sessions.issue(guessed, Session("other", "tests", 4_000_000_000)),
        "SecretAccessKey": keys["SecretAccessKey"],
    }
    with pytest.raises(ClientError, match=r"\(SignatureDoesNotMatch\)"):
        with_keys(cloud, forged, "sts").get_caller_identity()


@pytest.mark.parametrize("arguments", [{"DurationSeconds": 899}, {"RoleSessionName": "a b"}])
def test_session_outside_the_service_limits_is_refused(cloud: Cloud, arguments: dict[str, Any]) -> None:
    from botocore.config import Config

    sts = client_of(cloud.endpoint, "sts", config=Config(parameter_validation=False, proxies={}))
    with pytest.raises(ClientError, match=r"\(ValidationError\).*1 validation error detected"):
        sts.assume_role(**{"RoleArn": ROLE, "RoleSessionName": "tests", **arguments})


def test_roles_are_listed_page_by_page(cloud: Cloud) -> None:
    pages = client_of(cloud.endpoint, "iam").get_paginator("list_roles").paginate(PaginationConfig={"PageSize": 1})
    assert [[one["RoleName"] for one in page["Roles"]] for page in pages] == [["other"], ["training"]]


def test_job_cannot_get_keys_of_another_role(cloud: Cloud) -> None:
    (cloud.state_dir / "account.yaml").write_text("roles: {training: {}, open: {}}")
    script = """
        import boto3
        from botocore.exceptions import ClientError
        def outcome(call, **parameters):
            try:
                call(**parameters)
                return "allowed"
            except ClientError as error:
                return error.response["Error"]["Code"]
        sts = boto3.client("sts")
        role = {"RoleArn": "arn:aws:iam::000000000000:role/open", "RoleSessionName": "job"}
        print("token", outcome(sts.get_session_token), "role", outcome(sts.assume_role, **role))
    """
    job = cloud.run("no-other-keys", script)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    cloud.await_log("no-other-keys", "token AccessDenied role AccessDenied")


def test_role_with_path_can_be_assumed(cloud: Cloud) -> None:
    arn = "arn:aws:iam::000000000000:role/service-role/training"
    answer = client_of(cloud.endpoint, "sts").assume_role(RoleArn=arn, RoleSessionName="tests")
    assert answer["AssumedRoleUser"]["Arn"] == "arn:aws:sts::000000000000:assumed-role/training/tests"


def test_reused_job_name_has_the_role_of_the_new_job(cloud: Cloud) -> None:
    (cloud.state_dir / "account.yaml").write_text('roles: {open: {}, closed: {denied: ["s3:PutObject"]}}')
    script = "import boto3; print('is', boto3.client('sts').get_caller_identity()['Arn'])"
    for role in ("open", "closed"):
        job = cloud.run("again", script, RoleArn=f"arn:aws:iam::000000000000:role/{role}")
        assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
        cloud.await_log("again", f"is arn:aws:sts::000000000000:assumed-role/{role}/SageMaker")
        cloud.sagemaker.delete_training_job(TrainingJobName="again")
