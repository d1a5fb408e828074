"""S3 clients that share no code with botocore: curl, pyarrow (AWS's SDK for C++) and s3torchconnector (AWS's Common
Runtime). `make test-clients` makes their environment. DuckDB is not among them: it downloads its S3 extension when it
runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config

from smdp_launch.localcloud.client.connect import Endpoint, private
from tests.conftest import ROOT
from tests.support.services.cloud import client_of

pytestmark = pytest.mark.clients
PYTHON = Path(os.environ.get("SMDP_TEST_CLIENT_PYTHON", ROOT / ".venv-clients" / "bin" / "python"))
BUCKET = "bucket"
LARGE = bytes(range(256)) * (80 << 10)  # 20 MiB: clients send it in parts


def has(package: str) -> bool:
    command = [str(PYTHON), "-c", f"import {package}"]
    return PYTHON.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not has(package), reason=f"{PYTHON} does not have {package}")


@dataclass
class Client:
    endpoint: Endpoint
    folder: Path

    @property
    def s3(self) -> Any:
        return client_of(self.endpoint, "s3")

    def presigned(self, operation: str, key: str, version: str | None) -> str:
        client = client_of(self.endpoint, "s3", config=Config(signature_version=version))
        url: str = client.generate_presigned_url(operation, Params={"Bucket": BUCKET, "Key": key}, ExpiresIn=300)
        return url

    def curl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        command = ["curl", "--silent", "--show-error", "--noproxy", "*", *(["--fail"] if check else []), *arguments]
        return subprocess.run(command, capture_output=True, check=check, timeout=120)

    def python(self, script: str) -> Any:
        """The last line that the script prints, which is JSON."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ACCESS_KEY_ID": self.endpoint.access_key,
            "AWS_SECRET_ACCESS_KEY": self.endpoint.secret_key,
            "URL": self.endpoint.url,
            "REGION": self.endpoint.region,
        }
        command = [str(PYTHON), "-c", textwrap.dedent(script)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with private(tmp_path / "state") as endpoint:
        found = Client(endpoint, tmp_path)
        found.s3.create_bucket(Bucket=BUCKET)
        (tmp_path / "large").write_bytes(LARGE)
        yield found


@needs_curl
@pytest.mark.parametrize("version", [None, "s3v4"])
def test_curl_uses_presigned_urls(client: Client, version: str | None) -> None:
    put, get = (client.presigned(f"{method}_object", "a b/ü+c", version) for method in ("put", "get"))
    client.curl("--upload-file", str(client.folder / "large"), put)
    assert client.s3.get_object(Bucket=BUCKET, Key="a b/ü+c")["Body"].read() == LARGE
    client.curl("--output", str(client.folder / "back"), get)
    assert (client.folder / "back").read_bytes() == LARGE
    assert client.curl("--range", "1-3", get).stdout == b"\1\2\3"
    refused = client.curl(get.replace("Signature=", "Signature=0"), check=False).stdout
    assert (
        b"<Code>SignatureDoesNotMatch</Code>" in refused or b"<Code>AuthorizationQueryParametersError</Code>" in refused
    )


@needs_curl
def test_curl_signs_requests(client: Client) -> None:
    signed = ("--aws-sigv4", f"aws:amz:{client.endpoint.region}:s3")
    keys = ("--user", f"{client.endpoint.access_key}:{client.endpoint.secret_key}")
    hashed = ("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD")
    url = f"{client.endpoint.url}/{BUCKET}/by-curl"
    client.curl(*signed, *keys, *hashed, "--upload-file", str(client.folder / "large"), url)
    assert client.s3.get_object(Bucket=BUCKET, Key="by-curl")["Body"].read() == LARGE
    assert client.curl(*signed, *keys, *hashed, url).stdout == LARGE


ARROW = """
    import json, os
    import pyarrow as pa, pyarrow.parquet as pq
    from pyarrow import fs

    s3 = fs.S3FileSystem(endpoint_override=os.environ["URL"].removeprefix("http://"), scheme="http",
                         region=os.environ["REGION"], allow_bucket_creation=True)
"""


@needs("pyarrow")
def test_pyarrow_writes_reads_and_lists(client: Client) -> None:
    found = client.python(
        f"""{ARROW}
    s3.create_dir("arrow")
    table = pa.table({{"n": list(range(100_000)), "text": [str(n) for n in range(100_000)]}})
    pq.write_table(table, "arrow/set/part-0.parquet", filesystem=s3)
    data = bytes(range(256)) * (80 << 10)
    with s3.open_output_stream("arrow/set/deep/large file+1") as file:
        file.write(data)
    with s3.open_input_stream("arrow/set/deep/large file+1") as file:
        same = file.read() == data
    listed = {{one.path: one.size for one in s3.get_file_info(fs.FileSelector("arrow/set", recursive=True))}}
    equal = pq.read_table("arrow/set/part-0.parquet", filesystem=s3, columns=["n"]).equals(table.select(["n"]))
    s3.copy_file("arrow/set/part-0.parquet", "arrow/set/copy.parquet")
    s3.delete_file("arrow/set/part-0.parquet")
    try:
        s3.open_input_stream("arrow/set/part-0.parquet")
        missing = ""
    except FileNotFoundError as error:
        missing = str(error)
    print(json.dumps([same, equal, listed, missing]))
    """
    )
    same, equal, listed, missing = found
    assert (same, equal) == (True, True)
    assert listed["arrow/set/deep/large file+1"] == len(LARGE)
    assert listed["arrow/set/deep"] is None
    assert "arrow/set/part-0.parquet" in missing
    keys = [one["Key"] for one in client.s3.list_objects_v2(Bucket="arrow")["Contents"]]
    assert [key for key in keys if not key.endswith("/")] == ["set/copy.parquet", "set/deep/large file+1"]
    assert client.s3.get_object(Bucket="arrow", Key="set/deep/large file+1")["Body"].read() == LARGE


@needs("pyarrow")
def test_pyarrow_reports_a_denial(client: Client) -> None:
    client.s3.put_object(Bucket=BUCKET, Key="kept", Body=b"x")
    (client.folder / "state" / "account.yaml").write_text('denied: ["s3:PutObject"]\n')
    message = client.python(
        f"""{ARROW}
    try:
        with s3.open_output_stream("{BUCKET}/kept") as file:
            file.write(b"y")
        message = ""
    except OSError as error:
        message = str(error)
    print(json.dumps(message))
    """
    )
    assert "ACCESS_DENIED" in message
    assert "is not authorized to perform: s3:PutObject" in message
    assert client.s3.get_object(Bucket=BUCKET, Key="kept")["Body"].read() == b"x"


@needs("s3torchconnectorclient")
def test_s3torchconnector_writes_reads_and_lists(client: Client) -> None:
    found = client.python(
        f"""
    import json, os
    from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client

    client = MountpointS3Client(os.environ["REGION"], endpoint=os.environ["URL"], user_agent_prefix="test",
                                force_path_style=True)
    data = bytes(range(256)) * (80 << 10)
    stream = client.put_object("{BUCKET}", "checkpoints/step 1.pt")
    stream.write(data)
    stream.close()
    same = b"".join(client.get_object("{BUCKET}", "checkpoints/step 1.pt")) == data
    pages = client.list_objects("{BUCKET}", "checkpoints/")
    print(json.dumps([same, [one.key for page in pages for one in page.object_info]]))
    """
    )
    assert found == [True, ["checkpoints/step 1.pt"]]
    assert client.s3.get_object(Bucket=BUCKET, Key="checkpoints/step 1.pt")["Body"].read() == LARGE
