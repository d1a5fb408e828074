"""Fetches the on-demand prices of SageMaker's instances from the AWS Price List API, with the user's credentials.

A product of AmazonSageMaker has a usage type such as ``USE1-Train:ml.p4d.24xlarge`` and the region's code. Only prices
for an hour of training or of an endpoint are read. Where the API has two different prices for the same, it has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from smdp_launch.catalog.limits import endpoint_types, known_instance_types, transform_types
from smdp_launch.catalog.prices import HIGHEST_PRICE, PriceTable, fetched_file, read_prices
from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem, Refused, ServiceProblem
from smdp_launch.jobs.service.clients import connect_service
from smdp_launch.jobs.service.retry import as_service_problem
from smdp_launch.private_files import write_bytes

_USAGE = re.compile(r"(?:^|-)(?P<purpose>Train|Host):(?P<type>ml\.[a-z0-9.-]+)$")
#: Pages of 100 products. A region had fewer than 100 pages when this was written; more is an endless answer.
_MOST_PAGES = 1000
_SOURCE = "AWS Price List API, on-demand prices of AmazonSageMaker"


@dataclass(frozen=True)
class FetchedPrices:
    """Args:
    path: the file that was written.
    ambiguous: the types with two different prices, of which none is written.
    """

    path: Path
    table: PriceTable
    ambiguous: tuple[str, ...]


def update_prices(region: str, today: date) -> FetchedPrices:
    """Fetch the prices of the region and write them to the user's data folder.

    Raises:
        Refused: the prices of the region are not in USD.
        ServiceProblem: the Price List API refused, did not answer, or has no prices for the region.
        EnvironmentProblem: no credentials, or the file cannot be written.
    """
    if region.startswith("cn-"):
        raise Refused(f"AWS's prices in {region} are in CNY: write a table in USD, and name it with --prices")
    path = fetched_file(region)
    if path is None:
        raise EnvironmentProblem("there is no home folder, so there is no place for the prices")
    training: dict[str, set[float]] = {}
    hosting: dict[str, set[float]] = {}
    for purpose, name, price in _prices(_products(region)):
        by_type = training if purpose == "Train" else hosting
        by_type.setdefault(name, set()).add(price)
    found = _single(training, known_instance_types())
    served = _single(hosting, endpoint_types() | transform_types())
    if not found:
        raise ServiceProblem(f"the AWS Price List API has no prices of training instances in {region}")
    document = {"date": today.isoformat(), "source": _SOURCE, "currency": "USD", "prices": {region: found}}
    if served:
        document["hosting"] = {region: served}
    _write(path, document)
    ambiguous = sorted({name for table in (training, hosting) for name, prices in table.items() if len(prices) > 1})
    return FetchedPrices(path, read_prices(path), tuple(ambiguous))


def _single(by_type: Mapping[str, set[float]], known: frozenset[str]) -> dict[str, float]:
    return {
        name: next(iter(prices))
        for name, prices in sorted(by_type.items())
        if len(prices) == 1 and name in known and 0 < min(prices) <= HIGHEST_PRICE
    }


def _write(path: Path, document: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, (json.dumps(document, indent=1) + "\n").encode())
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


def _products(region: str) -> Iterator[Mapping[str, Any]]:
    client = connect_service("pricing", "us-east-1")  # the API of all regions
    arguments: dict[str, Any] = {
        "ServiceCode": "AmazonSageMaker",
        "FormatVersion": "aws_v1",
        "MaxResults": 100,
        "Filters": [{"Type": "TERM_MATCH", "Field": "regionCode", "Value": region}],
    }
    for _ in range(_MOST_PAGES):
        with as_service_problem(f"the prices of {region} cannot be fetched"):
            answer = client.get_products(**arguments)
        for text in answer.get("PriceList", []):
            yield _product(text, region)
        if not answer.get("NextToken"):
            return
        arguments["NextToken"] = answer["NextToken"]
    raise ServiceProblem(f"the prices of {region} cannot be fetched: the answer of the Price List API has no end")


def _product(text: str, region: str) -> Mapping[str, Any]:
    try:
        product = json.loads(text)
    except (ValueError, RecursionError):
        product = None
    if not isinstance(product, dict):
        raise ServiceProblem(
            f"the prices of {region} cannot be fetched: a product of the Price List API is no JSON object"
        )
    return product


def _prices(products: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, float]]:
    """``Train`` or ``Host``, the instance type, and USD an hour. Products with another form are left out."""
    for one in products:
        attributes = _mapping(_mapping(one.get("product")).get("attributes"))
        usage = _USAGE.search(str(attributes.get("usagetype", "")))
        if usage is None or attributes.get("locationType", "AWS Region") != "AWS Region":
            continue
        for term in _mapping(_mapping(one.get("terms")).get("OnDemand")).values():
            for dimension in _mapping(_mapping(term).get("priceDimensions")).values():
                price = _hourly(_mapping(dimension))
                if price is not None:
                    yield usage["purpose"], usage["type"], price


def _hourly(dimension: Mapping[str, Any]) -> float | None:
    if str(dimension.get("unit")) not in ("Hrs", "Hours", "hour") or str(dimension.get("beginRange", "0")) != "0":
        return None
    try:
        return float(_mapping(dimension.get("pricePerUnit"))["USD"])
    except (KeyError, TypeError, ValueError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
