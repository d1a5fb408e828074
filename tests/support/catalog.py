"""Facts of the catalog."""

from __future__ import annotations

US = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
