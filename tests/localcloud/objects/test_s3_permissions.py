"""S3 actions that `account.yaml` denies: to the user, to a job's script, and to the supervisor of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.protocol.signatures import Credentials, Holder, job_hash
from tests.support.services.cloud import BUCKET, Cloud, client_of

ROLE = "arn:aws:sts::000000000000:assumed-role/training/SageMaker"
WRITES = "import os\nopen(os.environ['SM_MODEL_DIR'] + '/m', 'w').write('x')\n"


@pytest.fixture
def deny(cloud: Cloud) -> Iterator[Callable[..., None]]:
    """Write an `account.yaml` that denies these actions to the user and to the role `training`."""
    path = cloud.state_dir / "account.yaml"

    def write(*user: str, role: tuple[str, ...] = ()) -> None:
        denied, of_role = (str(list(actions)).replace("'", '"') for actions in (user, role))
        path.write_text(f"caller: user/ana\ndenied: {denied}\nroles:\n  training: {{denied: {of_role}}}\n")

    cloud.s3.put_object(Bucket=BUCKET, Key="data/one", Body=b"1")
    yield write
    path.unlink(missing_ok=True)


def refusal(call: Callable[..., Any], **parameters: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def message(action: str, resource: str, user: str = "arn:aws:iam::000000000000:user/ana") -> str:
    return (
        f'User: {user} is not authorized to perform: {action} on resource: "{resource}" with an explicit deny in an '
        "identity-based policy"
    )


BUCKET_ARN, KEY_ARN = f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/data/one"
NAMES = {"Bucket": BUCKET, "Key": "data/one"}
SOURCE = {"Bucket": BUCKET, "Key": "data/source"}
CALLS: list[tuple[str, dict[str, Any], str, str]] = [
    ("list_buckets", {}, "s3:ListAllMyBuckets", "*"),
    ("create_bucket", {"Bucket": "another"}, "s3:CreateBucket", "arn:aws:s3:::another"),
    ("delete_bucket", {"Bucket": BUCKET}, "s3:DeleteBucket", BUCKET_ARN),
    ("get_bucket_location", {"Bucket": BUCKET}, "s3:GetBucketLocation", BUCKET_ARN),
    ("list_objects", {"Bucket": BUCKET}, "s3:ListBucket", BUCKET_ARN),
    ("list_objects_v2", {"Bucket": BUCKET}, "s3:ListBucket", BUCKET_ARN),
    ("list_multipart_uploads", {"Bucket": BUCKET}, "s3:ListBucketMultipartUploads", BUCKET_ARN),
    ("get_object", NAMES, "s3:GetObject", KEY_ARN),
    ("put_object", {**NAMES, "Body": b"2"}, "s3:PutObject", KEY_ARN),
    ("delete_object", NAMES, "s3:DeleteObject", KEY_ARN),
    ("create_multipart_upload", NAMES, "s3:PutObject", KEY_ARN),
    ("upload_part", {**NAMES, "UploadId": "u", "PartNumber": 1, "Body": b"2"}, "s3:PutObject", KEY_ARN),
    ("list_parts", {**NAMES, "UploadId": "u"}, "s3:ListMultipartUploadParts", KEY_ARN),
    ("abort_multipart_upload", {**NAMES, "UploadId": "u"}, "s3:AbortMultipartUpload", KEY_ARN),
    ("copy_object", {**NAMES, "CopySource": SOURCE}, "s3:PutObject", KEY_ARN),
    ("copy_object", {**NAMES, "CopySource": SOURCE}, "s3:GetObject", f"{BUCKET_ARN}/data/source"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parameters", "action", "resource"), CALLS)
def test_s3_action_denied_to_caller_is_refused(
    cloud: Cloud, deny: Callable[..., None], name: str, parameters: dict[str, Any], action: str, resource: str
) -> None:
    deny(action)
    assert refusal(getattr(cloud.s3, name), **parameters) == ("AccessDenied", message(action, resource))
    deny("ec2:*")
    assert cloud.object("data/one") == b"1"


def test_a_head_without_permission_is_forbidden(cloud: Cloud, deny: Callable[..., None]) -> None:
    deny("s3:*")
    assert refusal(cloud.s3.head_object, **NAMES) == ("403", "Forbidden")
    assert refusal(cloud.s3.head_bucket, Bucket=BUCKET) == ("403", "Forbidden")


def test_missing_key_is_reported_only_with_list_permission(cloud: Cloud, deny: Callable[..., None]) -> None:
    names = {"Bucket": BUCKET, "Key": "none"}
    deny("s3:ListBucket")
    assert refusal(cloud.s3.get_object, **names) == ("AccessDenied", message("s3:ListBucket", BUCKET_ARN))
    assert refusal(cloud.s3.head_object, **names)[0] == "403"
    assert cloud.object("data/one") == b"1"
    deny("s3:Put*")
    assert refusal(cloud.s3.get_object, **names)[0] == "NoSuchKey"


def test_missing_bucket_is_reported_without_permission(cloud: Cloud, deny: Callable[..., None]) -> None:
    deny("s3:*")
    assert refusal(cloud.s3.list_objects_v2, Bucket="no-such-bucket")[0] == "NoSuchBucket"


def test_denied_deletion_of_several_keys_has_an_error_for_each(cloud: Cloud, deny: Callable[..., None]) -> None:
    deny("s3:DeleteObject")
    keys = ["data/one", "<two>"]
    answer = cloud.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
    assert [(one["Key"], one["Code"]) for one in answer["Errors"]] == [(key, "AccessDenied") for key in keys]
    assert cloud.object("data/one") == b"1"


def test_a_presigned_url_has_the_permissions_of_its_keys(cloud: Cloud, deny: Callable[..., None]) -> None:
    from tests.support.services.presigned import code, presign
    from tests.support.services.raw_requests import Wire

    wire = Wire(cloud)
    wire.headers, wire.body = {"Host": wire.netloc}, b""
    presign(wire, "get_object", Key="data/one")
    assert wire.send() == (200, b"1")
    deny("s3:GetObject")
    status, body = wire.send()
    assert (status, code(body)) == (403, "AccessDenied")


def channel() -> list[dict[str, Any]]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data"}
    return [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]


@pytest.mark.parametrize(
    ("action", "resource"), [("s3:GetObject", f"{BUCKET_ARN}/data/one"), ("s3:ListBucket", BUCKET_ARN)]
)
def test_a_job_whose_role_may_not_read_its_channel_fails(
    cloud: Cloud, deny: Callable[..., None], action: str, resource: str
) -> None:
    deny(role=(action,))
    job = cloud.run(f"no-{action[3:]}", WRITES, InputDataConfig=channel())
    expected = f"ClientError: Data download failed:AccessDenied (403): {message(action, resource, ROLE)}"
    assert (job["TrainingJobStatus"], job["FailureReason"]) == ("Failed", expected)


def test_a_job_whose_role_may_not_upload_its_model_fails(cloud: Cloud, deny: Callable[..., None]) -> None:
    deny(role=("s3:Put*",))
    job = cloud.run("no-put", WRITES)
    model = f"{BUCKET_ARN}/out/no-put/output/model.tar.gz"
    expected = f"ClientError: Artifact upload failed:AccessDenied (403): {message('s3:PutObject', model, ROLE)}"
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith(expected)
    assert cloud.keys("out/no-put") == []


def test_a_job_whose_role_may_not_list_its_output_bucket_completes(cloud: Cloud, deny: Callable[..., None]) -> None:
    deny(role=("s3:ListBucket",))
    assert cloud.run("no-list", WRITES)["TrainingJobStatus"] == "Completed"
    assert cloud.keys("out/no-list") == ["out/no-list/output/model.tar.gz"]


@pytest.mark.parametrize(
    ("action", "work", "resource"),
    [
        ("s3:ListBucket", "Checkpoint download failed", BUCKET_ARN),
        ("s3:PutObject", "Checkpoint upload failed", f"{BUCKET_ARN}/saved/c"),
    ],
)
def test_job_whose_role_may_not_upload_checkpoints_fails(
    cloud: Cloud, deny: Callable[..., None], action: str, work: str, resource: str
) -> None:
    deny(role=(action,))
    script = "open('/opt/ml/checkpoints/c', 'w').write('x')\n"
    job = cloud.run(f"no-{action[3:]}-c", script, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/saved"})
    expected = f"ClientError: {work}:AccessDenied (403): {message(action, resource, ROLE)}"
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith(expected)


def test_user_does_not_have_denials_of_a_role(cloud: Cloud, deny: Callable[..., None]) -> None:
    deny("s3:PutObject")
    assert cloud.object("data/one") == b"1"
    deny(role=("s3:*",))
    assert cloud.object("data/one") == b"1"


def test_the_keys_of_a_jobs_role_have_its_denials(cloud: Cloud, deny: Callable[..., None]) -> None:
    deny(role=("s3:GetObject",))
    cloud.run("of-role", "print(1)\n")
    for holder in (Holder("role", 0, job_hash("of-role")), Holder("agent", job=job_hash("of-role"))):
        keys = Credentials(cloud.endpoint.access_key, cloud.endpoint.secret_key).of(holder)
        s3 = client_of(cloud.endpoint, "s3", aws_access_key_id=keys.access_key, aws_secret_access_key=keys.secret_key)
        assert refusal(s3.get_object, **NAMES) == ("AccessDenied", message("s3:GetObject", KEY_ARN, ROLE))
        assert s3.list_objects_v2(Bucket=BUCKET, Prefix="data/one")["KeyCount"] == 1
