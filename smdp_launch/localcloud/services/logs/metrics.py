"""The CloudWatch calls that read the values found by a job's metric definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.runtime.meter import Point, points
from smdp_launch.localcloud.services.logs.calls import GROUP
from smdp_launch.localcloud.services.paging import numbered_page
from smdp_launch.localcloud.services.training.job_store import JobStore

NAMESPACE = GROUP
_DIMENSION = "TrainingJobName"
_PAGE = 500  # as the service
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "Sum": sum,
    "Minimum": min,
    "Maximum": max,
    "SampleCount": len,
    "Average": lambda values: sum(values) / len(values),
}


class MetricService:
    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def actions(self) -> dict[str, Action]:
        return checked("cloudwatch", self.ListMetrics, self.GetMetricData, self.GetMetricStatistics)

    def ListMetrics(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        found = [
            {"Namespace": NAMESPACE, "MetricName": name, "Dimensions": [{"Name": _DIMENSION, "Value": folder.name}]}
            for folder in self._jobs.folders(caller.region())
            for name in self._names(folder)
            if _is_listed(request, folder.name, name)
        ]
        page, following = numbered_page(
            found, request, _PAGE, ServiceError("InvalidParameterValue", "Invalid NextToken.")
        )
        return {"Metrics": page, **following}

    def GetMetricData(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        results = []
        for query in request["MetricDataQueries"]:
            if "MetricStat" not in query:
                raise ServiceError("ValidationError", "The local cloud computes no expressions; use MetricStat.")
            stat = query["MetricStat"]
            metric = stat["Metric"]
            computed = self._statistics(metric, stat["Period"], [stat["Stat"]], request)
            if request.get("ScanBy", "TimestampDescending") == "TimestampDescending":
                computed.reverse()
            result = {"Id": query["Id"], "Label": query.get("Label", metric.get("MetricName", ""))}
            times, values = [one["Timestamp"] for one in computed], [float(one[stat["Stat"]]) for one in computed]
            if query.get("ReturnData", True):
                results.append({**result, "Timestamps": times, "Values": values, "StatusCode": "Complete"})
        return {"MetricDataResults": results, "Messages": []}

    def GetMetricStatistics(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        computed = self._statistics(request, request["Period"], request.get("Statistics", []), request)
        return {"Label": request["MetricName"], "Datapoints": [{**one, "Unit": "None"} for one in computed]}

    def _names(self, folder: JobFolder) -> Iterable[str]:
        state = self._jobs.state(folder)
        if state.has_ended:
            return [one["MetricName"] for one in state.metrics]
        return dict.fromkeys(one.name for one in points(folder))

    def _statistics(
        self, metric: Parameters, period: int, statistics: Sequence[str], window: Parameters
    ) -> list[dict[str, Any]]:
        """One entry for each period with values, in the order of time."""
        unknown = [one for one in statistics if one not in _FUNCTIONS]
        if unknown:
            raise ServiceError("InvalidParameterValue", f"The local cloud does not have the statistic {unknown[0]!r}.")
        spans: dict[int, list[float]] = {}
        for one in self._points(metric):
            if window["StartTime"] <= one.time < window["EndTime"]:
                spans.setdefault(int(one.time // period) * period, []).append(one.value)
        return [
            {"Timestamp": float(start), **{name: float(_FUNCTIONS[name](values)) for name in statistics}}
            for start, values in sorted(spans.items())
        ]

    def _points(self, metric: Parameters) -> Iterator[Point]:
        names = [one["Value"] for one in metric.get("Dimensions", []) if one["Name"] == _DIMENSION]
        is_of_job = names and metric.get("Namespace") == NAMESPACE
        folder = self._jobs.folder(names[0], caller.region()) if is_of_job else None
        if folder is not None:
            yield from (one for one in points(folder) if one.name == metric.get("MetricName"))


def _is_listed(request: Parameters, job: str, name: str) -> bool:
    dimensions = request.get("Dimensions", [])
    return (
        request.get("Namespace", NAMESPACE) == NAMESPACE
        and request.get("MetricName", name) == name
        and all(one["Name"] == _DIMENSION and one.get("Value", job) == job for one in dimensions)
    )
