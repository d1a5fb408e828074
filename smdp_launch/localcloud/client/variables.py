"""Environment variables that send AWS clients to a local cloud, and to no other place."""

from __future__ import annotations

from collections.abc import Mapping

from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.localcloud.layout import StateFolder

STATE = "SMDP_LOCAL_STATE"
SDK_DEFAULTS = "SAGEMAKER_USER_CONFIG_OVERRIDE"
IGNORE = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
#: All variables that are set for a local cloud.
NAMES = (
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    IGNORE,
    SDK_DEFAULTS,
    STATE,
)
_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def variables(endpoint: Endpoint, environ: Mapping[str, str]) -> dict[str, str | None]:
    """The variables to set in a process whose environment is `environ`; None for a variable to remove.

    Every AWS client reads them (the command line, boto3, the SDKs); SDK_DEFAULTS is for the SageMaker SDK, and STATE
    for smdp-launch itself. IGNORE overrides `ignore_configured_endpoint_urls` of ~/.aws/config, with which clients
    would send their requests to AWS. The user's other AWS variables are removed: a profile or the address of a single
    service would override these variables.
    """
    state = StateFolder(endpoint.state_dir)
    wanted: dict[str, str | None] = {
        "AWS_ENDPOINT_URL": endpoint.url,
        "AWS_ACCESS_KEY_ID": endpoint.access_key,
        "AWS_SECRET_ACCESS_KEY": endpoint.secret_key,
        "AWS_DEFAULT_REGION": endpoint.region,
        "AWS_REGION": endpoint.region,
        IGNORE: "false",
        SDK_DEFAULTS: str(state.sdk_defaults),
        STATE: str(state.root),
    }
    if any(environ.get(name) for name in _PROXIES):
        wanted |= {name: _without_proxy(environ.get(name, "")) for name in ("NO_PROXY", "no_proxy")}
    return wanted | {name: None for name in sorted(environ) if name.startswith("AWS_") and name not in wanted}


def _without_proxy(known: str) -> str:
    hosts = [one for one in known.split(",") if one]
    return ",".join(hosts if "127.0.0.1" in hosts else [*hosts, "127.0.0.1"])
