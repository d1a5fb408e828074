"""Input channels: objects under a prefix become files on the hosts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.client.bucket import Buckets, during
from smdp_launch.localcloud.objects import natural_path
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
) -> None:
    """Fill one channel on every host. `check` is called before each object and may raise to end the download."""
    with during("Data download failed"):
        _download(channel, trees, buckets, check)


def _download(
    channel: Mapping[str, Any], trees: Sequence[HostTree], buckets: Buckets, check: Callable[[], None]
) -> None:
    source = channel["DataSource"]["S3DataSource"]
    name = channel["ChannelName"]
    bucket, prefix = split_uri(source["S3Uri"])
    keys = buckets.keys(bucket, prefix)
    if not keys:
        raise JobFailed(
            f'ClientError: Data download failed:No S3 objects found under S3 URL "{source["S3Uri"]}" given in input '
            f"data source (channel {name!r}). Please ensure that the bucket exists and that objects exist under the "
            "specified S3 prefix."
        )
    sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
    for number, key in enumerate(keys):
        check()
        receivers = [trees[number % len(trees)]] if sharded else trees
        _copy(buckets, bucket, key, [tree.channel(name) / relative_path(key, prefix) for tree in receivers])


def _copy(buckets: Buckets, bucket: str, key: str, paths: Sequence[Path]) -> None:
    first, *others = paths
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        buckets.download(bucket, key, first)
        for path in others:
            shutil.copyfile(first, path)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise JobFailed(
            f"ClientError: Data download failed: {key!r} is both an object and the folder of another object."
        ) from None
