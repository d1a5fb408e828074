"""Input channels from S3: objects under a prefix become files on the hosts, or are listed to be read by them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.client.bucket import Buckets, during
from smdp_launch.localcloud.inputs.trees import Object, ObjectTree
from smdp_launch.localcloud.objects import find, natural_path
from smdp_launch.localcloud.protocol.requests import split_uri
from smdp_launch.localcloud.runtime.outcome import JobFailed
from smdp_launch.localcloud.runtime.tree import HostTree


def relative_path(key: str, prefix: str) -> Path:
    """An object's path in its channel: the key without the prefix, or the last part of a key that equals the prefix."""
    rest = key[len(prefix) :].lstrip("/") or key.rpartition("/")[2]
    path = natural_path(rest)
    if path is None:
        raise JobFailed(f"ClientError: Data download failed: the key {key!r} does not make a file name.")
    return path


def download(
    channel: Mapping[str, Any], trees: Sequence[HostTree], buckets: Buckets, check: Callable[[], None]
) -> dict[str, int]:
    """Fill one channel on every host. `check` is called before each object and may raise to end the download.

    Returns the bytes that each host got, by its name.
    """
    amounts = dict.fromkeys((tree.name for tree in trees), 0)
    with during("Data download failed"):
        bucket, prefix, keys = _keys(channel, buckets)
        for number, key in enumerate(keys):
            check()
            receivers = _receivers(channel, trees, number)
            paths = [tree.channel(channel["ChannelName"]) / relative_path(key, prefix) for tree in receivers]
            amount = _copy(buckets, bucket, key, paths)
            for tree in receivers:
                amounts[tree.name] += amount
    return amounts


def listed(
    channel: Mapping[str, Any], trees: Sequence[HostTree], buckets: Buckets, objects: Path, check: Callable[[], None]
) -> dict[str, list[Object]]:
    """The objects of one channel for each host, by its name, in the order of their keys. Nothing is copied.

    Args:
        objects: the folder of the buckets.
        check: as in `download`.
    """
    bucket, prefix, keys = _keys(channel, buckets)
    buckets.check_readable(bucket, keys[0])
    found: dict[str, list[Object]] = {tree.name: [] for tree in trees}
    for number, key in enumerate(keys):
        check()
        one = _object(objects / bucket, key, str(relative_path(key, prefix)))
        for tree in _receivers(channel, trees, number):
            found[tree.name].append(one)
    try:
        for of_host in found.values():
            ObjectTree(of_host)
    except FileExistsError as error:
        raise _both(str(error.filename)) from None
    return found


def _keys(channel: Mapping[str, Any], buckets: Buckets) -> tuple[str, str, list[str]]:
    """Bucket, prefix and keys of the channel. Raises JobFailed where there are none."""
    source = channel["DataSource"]["S3DataSource"]
    bucket, prefix = split_uri(source["S3Uri"])
    keys = buckets.keys(bucket, prefix)
    if not keys:
        raise JobFailed(
            f'ClientError: Data download failed:No S3 objects found under S3 URL "{source["S3Uri"]}" given in input '
            f"data source (channel {channel['ChannelName']!r}). Please ensure that the bucket exists and that objects "
            "exist under the specified S3 prefix."
        )
    return bucket, prefix, keys


def _receivers(channel: Mapping[str, Any], trees: Sequence[HostTree], number: int) -> Sequence[HostTree]:
    """The hosts that get object `number` of the channel."""
    sharded = channel["DataSource"]["S3DataSource"].get("S3DataDistributionType") == "ShardedByS3Key"
    return [trees[number % len(trees)]] if sharded else trees


def _object(bucket: Path, key: str, path: str) -> Object:
    file = find(bucket, key)
    try:
        if file is None:
            raise FileNotFoundError
        status = file.stat()
    except FileNotFoundError:
        raise JobFailed(f"ClientError: Data download failed: {key!r} was deleted while it was listed.") from None
    return Object(path, str(file), status.st_size, status.st_mtime_ns)


def _copy(buckets: Buckets, bucket: str, key: str, paths: Sequence[Path]) -> int:
    """Returns the bytes of the object."""
    first, *others = paths
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        buckets.download(bucket, key, first)
        for path in others:
            shutil.copyfile(first, path)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise _both(key) from None
    return first.stat().st_size


def _both(key: str) -> JobFailed:
    return JobFailed(f"ClientError: Data download failed: {key!r} is both an object and the folder of another object.")
