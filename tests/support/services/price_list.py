"""A server that answers GetProducts in the form of the AWS Price List API, checked against botocore's service model."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from tests.conftest import clean_environment

_MODEL = botocore.session.get_session().get_service_model("pricing").operation_model("GetProducts")


def product(usage: str, usd: str, region: str = "us-east-1", **attributes: str) -> str:
    """A product with one on-demand price, as the API returns it: a JSON text."""
    sku = f"SKU{abs(hash((usage, usd, region))):X}"
    term = f"{sku}.JRTCKXETXF"
    rate = f"{term}.6YS6EN2CT7"
    dimension = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"${usd} per hour",
        "appliesTo": [],
        "rateCode": rate,
        "pricePerUnit": {"USD": usd},
    }
    known = {
        "servicecode": "AmazonSageMaker",
        "regionCode": region,
        "locationType": "AWS Region",
        "usagetype": usage,
        "operation": "RunInstance",
        "instanceType": "NA",
    }
    document = {
        "product": {"productFamily": "ML Instance", "sku": sku, "attributes": known | attributes},
        "serviceCode": "AmazonSageMaker",
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
        "terms": {
            "OnDemand": {
                term: {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "effectiveDate": "2026-11-01T00:00:00Z",
                    "termAttributes": {},
                    "priceDimensions": {rate: dimension},
                }
            }
        },
    }
    return json.dumps(document)


class PriceList:
    """Pages of products. ``requests`` has each GetProducts request.

    Args:
        status: an HTTP status other than 200 refuses each request as AWS does.
    """

    def __init__(self, pages: Sequence[Sequence[str]], status: int = 200) -> None:
        self.requests: list[dict[str, Any]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
                report = ParamValidator().validate(request, _MODEL.input_shape)
                assert not report.has_errors(), report.generate_report()
                owner.requests.append(request)
                page = int(request.get("NextToken", 0))
                answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": list(pages[page])}
                if page + 1 < len(pages):
                    answer["NextToken"] = str(page + 1)
                if status != 200:
                    answer = {"__type": "AccessDeniedException", "Message": "not authorized: pricing:GetProducts"}
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> PriceList:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def environment(self, home: Path) -> dict[str, str]:
        """Variables with which the launcher uses this server, with a home folder of its own."""
        return clean_environment(
            HOME=str(home),
            XDG_DATA_HOME=str(home / "data"),
            AWS_ENDPOINT_URL_PRICING=f"http://127.0.0.1:{self._server.server_port}",
            AWS_ACCESS_KEY_ID="key",
            AWS_SECRET_ACCESS_KEY="secret",
            NO_PROXY="127.0.0.1",
        )
