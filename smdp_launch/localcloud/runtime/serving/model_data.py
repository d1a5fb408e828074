"""The model of a production variant: downloaded and unpacked once, and shared by the variant's hosts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.client.bucket import BucketError, Buckets
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.protocol.requests import split_uri
from smdp_launch.localcloud.runtime.serving import archive

_CONTAINER = "container_1"  # the platform's name in messages for a model's only container


class DeploymentFailed(Exception):
    """The endpoint cannot run the deployment; the message is its FailureReason."""


def fetch(folder: EndpointFolder, variant: Mapping[str, Any], target: Path, check: Callable[[], None]) -> None:
    """Put the variant's model into the new folder `target`, with the rights of the model's role.

    `check` is called between the parts of the work, and may raise to end it. Raises DeploymentFailed.
    """
    target.mkdir(parents=True)
    container = container_of(variant)
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    uri = container.get("ModelDataUrl") or source.get("S3Uri") or ""
    if not uri:
        return
    buckets = Buckets(folder.state_folder, folder.principal(variant["VariantName"]))
    try:
        if source.get("S3DataType") == "S3Prefix":
            _fetch_prefix(buckets, uri, target, check)
        else:
            _fetch_archive(buckets, uri, target, check)
    except BucketError as error:
        raise DeploymentFailed(
            f'Failed to download model data for container "{_CONTAINER}" from URL: "{uri}". Please ensure that there '
            "is an object located at the URL and that the role passed to CreateModel has permissions to download the "
            f"object. ({error.reason})"
        ) from error
    except archive.ArchiveError as error:
        raise DeploymentFailed(
            f'Failed to extract model data archive for container "{_CONTAINER}" from URL "{uri}". Please ensure that '
            f"the object located at the URL is a valid tar.gz archive. ({error})"
        ) from error
    finally:
        buckets.close()


def hosts_of(variant: Mapping[str, Any]) -> int:
    """The number of a variant's hosts. A serverless variant has one, whatever its concurrency is."""
    return int(variant.get("InitialInstanceCount", 1))


def container_of(variant: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container of a variant's model."""
    model: Mapping[str, Any] = variant["Model"]
    found: Mapping[str, Any] = model.get("PrimaryContainer") or model["Containers"][0]
    return found


def share(model: Path, target: Path) -> None:
    """Give a host the model's files. They are links to the same files: a container may only read them."""
    shutil.copytree(model, target, copy_function=os.link, dirs_exist_ok=True)


def _fetch_archive(buckets: Buckets, uri: str, target: Path, check: Callable[[], None]) -> None:
    bucket, key = split_uri(uri)
    packed = target.with_name(f"{target.name}.tar.gz")
    try:
        buckets.download(bucket, key, packed)
        check()
        archive.unpack(packed, target, check)
    finally:
        packed.unlink(missing_ok=True)


def _fetch_prefix(buckets: Buckets, uri: str, target: Path, check: Callable[[], None]) -> None:
    bucket, prefix = split_uri(uri)
    keys = buckets.keys(bucket, prefix)
    if not keys:
        raise BucketError("NoSuchKey", "no object has this prefix", 404)
    for key in keys:
        check()
        name = Path(key.removeprefix(prefix).lstrip("/") or Path(key).name)
        if ".." in name.parts:
            raise archive.ArchiveError(f"{key!r} leads out of the model's folder")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        buckets.download(bucket, key, target / name)
