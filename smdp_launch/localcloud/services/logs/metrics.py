"""The CloudWatch calls: values found by a job's metric definitions, use of its hosts, reads from file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked
from smdp_launch.localcloud.runtime.meter import Point, points
from smdp_launch.localcloud.services.logs import measured
from smdp_launch.localcloud.services.logs.calls import GROUP
from smdp_launch.localcloud.services.paging import numbered_page
from smdp_launch.localcloud.services.training.job_store import JobStore

NAMESPACE = GROUP
_JOB, _HOST, _FILE_SYSTEM = "TrainingJobName", "Host", "FileSystemId"
_PAGE = 500  # as the service
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "Sum": sum,
    "Minimum": min,
    "Maximum": max,
    "SampleCount": len,
    "Average": lambda values: sum(values) / len(values),
}


class _Metric(NamedTuple):
    namespace: str
    name: str
    dimension: str


class MetricService:
    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def actions(self) -> dict[str, Action]:
        return checked("cloudwatch", self.ListMetrics, self.GetMetricData, self.GetMetricStatistics)

    def ListMetrics(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        found = [
            {
                "Namespace": one.namespace,
                "MetricName": one.name,
                "Dimensions": [{"Name": one.dimension, "Value": value}],
            }
            for one, value in self._metrics(request)
            if _is_listed(request, one, value)
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
        unit = measured.unit(request["MetricName"])
        return {"Label": request["MetricName"], "Datapoints": [{**one, "Unit": unit} for one in computed]}

    def _metrics(self, request: Parameters) -> Iterator[tuple[_Metric, str]]:
        """Each metric with the value of its dimension."""
        folders = list(self._jobs.folders(caller.region()))
        if request.get("Namespace", NAMESPACE) == NAMESPACE:
            for folder in folders:
                yield from ((_Metric(NAMESPACE, name, _JOB), folder.name) for name in self._names(folder))
                for host in measured.host_names(folder):
                    names = dict.fromkeys(one.name for one in measured.host_points(folder, host))
                    yield from ((_Metric(NAMESPACE, name, _HOST), f"{folder.name}/{host}") for name in names)
        if request.get("Namespace", measured.FSX) == measured.FSX:
            for system in sorted({one for folder in folders for one in measured.file_systems(folder).values()}):
                names = dict.fromkeys(one.name for one in measured.read_points(folders, system))
                yield from ((_Metric(measured.FSX, name, _FILE_SYSTEM), system) for name in names)

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
        dimensions = {one["Name"]: one["Value"] for one in metric.get("Dimensions", [])}
        if len(dimensions) == 1:
            ((dimension, value),) = dimensions.items()
            found = self._all_points(metric.get("Namespace"), dimension, value)
            yield from (one for one in found if one.name == metric.get("MetricName"))

    def _all_points(self, namespace: str | None, dimension: str, value: str) -> Iterator[Point]:
        """Every metric that has this dimension alone."""
        if (namespace, dimension) == (measured.FSX, _FILE_SYSTEM):
            yield from measured.read_points(self._jobs.folders(caller.region()), value)
        elif namespace == NAMESPACE and dimension in (_JOB, _HOST):
            job, _, host = value.partition("/")
            folder = self._jobs.folder(job, caller.region())
            if folder is not None and dimension == _HOST:
                yield from measured.host_points(folder, host)
            elif folder is not None and not host:
                yield from points(folder)


def _is_listed(request: Parameters, metric: _Metric, value: str) -> bool:
    return request.get("MetricName", metric.name) == metric.name and all(
        one["Name"] == metric.dimension and one.get("Value", value) == value for one in request.get("Dimensions", [])
    )
