"""The DNS domains of AWS's partitions (botocore's partitions.json, 2026-11-21)."""

from __future__ import annotations

# By the prefix of the region's name; the partition `aws` is the default.
_DOMAINS = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
}


def dns_suffix(region: str) -> str:
    return next((domain for start, domain in _DOMAINS.items() if region.startswith(start)), "amazonaws.com")
