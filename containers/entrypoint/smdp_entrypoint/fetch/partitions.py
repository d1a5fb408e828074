"""The domains of AWS's partitions (botocore's partitions.json, 2026-11-21)."""

from __future__ import annotations

# How the regions of the partitions other than `aws` begin.
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
