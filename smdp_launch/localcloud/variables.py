"""The environment that sends AWS clients to a local cloud, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from smdp_launch.localcloud.client import Endpoint

STATE = "SMDP_LOCAL_STATE"
#: All that are set wherever a local cloud is used.
NAMES = (
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    STATE,
)
_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def variables(endpoint: Endpoint, environ: Mapping[str, str]) -> dict[str, str | None]:
    """What to set, and as None what to take away, in a process whose environment is `environ`.

    Every AWS client reads these (the command line, boto3, the SDKs); STATE is for smdp-launch itself. The person's
    other AWS settings go: a profile or an address of one service would win over them.
    """
    region = endpoint.region
    values = (endpoint.url, endpoint.access_key, endpoint.secret_key, region, region, str(endpoint.state_dir))
    wanted: dict[str, str | None] = dict(zip(NAMES, values, strict=True))
    if any(environ.get(name) for name in _PROXIES):
        wanted |= {name: _without_proxy(environ.get(name, "")) for name in ("NO_PROXY", "no_proxy")}
    return wanted | {name: None for name in sorted(environ) if name.startswith("AWS_") and name not in wanted}


def _without_proxy(known: str) -> str:
    hosts = [one for one in known.split(",") if one]
    return ",".join(hosts if "127.0.0.1" in hosts else [*hosts, "127.0.0.1"])
