"""Which local images are pushed, with programs in place of the build tools, and a registry on loopback."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smdp_launch.errors import ExitCode, Refused
from smdp_launch.image.push import LocalImage, local_image, push
from smdp_launch.image.tools import NAMES, Tool
from tests.support.services.registry import CONFIG, MANIFEST, Server, digest, encoded, server

__all__ = ["server"]
HASHED = "2.0.1-cu118-py310-0123456789ab"


class Ecr:
    """The answers of ECR: a repository ``image`` whose registry is the server, and that has each tag."""

    exceptions = SimpleNamespace(RepositoryNotFoundException=KeyError, ImageNotFoundException=KeyError)

    def __init__(self, server: Server) -> None:
        self._host = server.host

    def describe_repositories(self, **_: Any) -> dict[str, Any]:
        return {"repositories": [{"repositoryUri": f"{self._host}/image"}]}

    def describe_images(self, **_: Any) -> dict[str, Any]:
        return {"imageDetails": [{}]}

    def get_authorization_token(self) -> dict[str, Any]:
        token = base64.b64encode(b"AWS:word").decode()
        return {"authorizationData": [{"authorizationToken": token, "proxyEndpoint": f"http://{self._host}"}]}


def tool(folder: Path, name: str, *, architecture: str = "amd64", image: str = "sha256:0") -> Tool:
    """A build tool whose `inspect` knows every image. It writes the arguments of each `push` to the file `pushed`."""
    answers = f"*Architecture*) echo {architecture};; *Id*|*FromImageID*) echo {image};;"
    script = f'case "$1 $*" in push*|*" push "*) echo "$@" >> {folder}/pushed;; {answers} esac'
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return Tool(name, str(folder / name))


@pytest.mark.parametrize("name", NAMES)
def test_image_is_built_for_the_processor_of_the_hosts(tmp_path: Path, name: str) -> None:
    command = tool(tmp_path, name).build(tmp_path, "smdp-pytorch:1", {})
    assert command[command.index("--platform") + 1] == "linux/amd64"


@pytest.mark.parametrize("name", NAMES)
def test_image_for_another_processor_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match=r"image:1 is for arm64, and SageMaker's hosts need amd64: .*--rebuild"):
        local_image("image:1", tool(tmp_path, name, architecture="arm64"))
    assert local_image("image:1", tool(tmp_path, name)).tag == "1"


@pytest.mark.parametrize("name", NAMES)
def test_rebuilt_image_with_the_tag_of_another_is_refused(tmp_path: Path, server: Server, name: str) -> None:
    uri = server.put_image(CONFIG)
    config, manifest = digest(encoded(CONFIG)), server.pages["/v2/image/manifests/1"](None)[2]  # type: ignore[arg-type, index]
    local = LocalImage("image:1", "image", "1")
    for same in (config, digest(manifest), config.removeprefix("sha256:")):
        here = tool(tmp_path, name, image=same)
        assert push(local, Ecr(server), here, print, create=False, again=False).fresh is False
    rebuilt = tool(tmp_path, name, image=f"sha256:{'1' * 64}")
    with pytest.raises(
        Refused, match=rf"{uri} exists, and is another image than the local image:1: add --again"
    ) as caught:
        push(local, Ecr(server), rebuilt, print, create=False, again=False)
    assert caught.value.exit_code == ExitCode.REFUSED == 6
    assert not (tmp_path / "pushed").exists()
    assert push(local, Ecr(server), rebuilt, print, create=False, again=True).fresh
    assert uri in (tmp_path / "pushed").read_text()


def test_index_of_the_registry_is_compared_too(tmp_path: Path, server: Server) -> None:
    """Docker with the image store of containerd identifies a local image by the digest of its index."""
    server.put_image(CONFIG, tag="amd")
    manifest = server.pages["/v2/image/manifests/amd"](None)[2]  # type: ignore[arg-type, index]
    server.put(f"/v2/image/manifests/{digest(manifest)}", manifest, MANIFEST)
    entry = {"digest": digest(manifest), "platform": {"os": "linux", "architecture": "amd64"}}
    index = encoded({"manifests": [entry]})
    server.put("/v2/image/manifests/1", index, "application/vnd.oci.image.index.v1+json")
    local = LocalImage("image:1", "image", "1")
    for same in (digest(index), digest(manifest), digest(encoded(CONFIG))):
        here = tool(tmp_path, "docker", image=same)
        assert push(local, Ecr(server), here, print, create=False, again=False).fresh is False


def test_tag_with_the_hash_of_the_inputs_is_not_compared(tmp_path: Path, server: Server) -> None:
    here = tool(tmp_path, "docker", image=f"sha256:{'1' * 64}")
    local = LocalImage(f"image:{HASHED}", "image", HASHED)
    assert push(local, Ecr(server), here, print, create=False, again=False).fresh is False
    assert server.asked == []
