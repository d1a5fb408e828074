"""MLflow: one run a job, by MLflow's own client. The script's own runs and settings of MLflow stay as they are."""

import os
import re
from typing import Any, Dict, List, Optional, Sequence

from .numbers import Report
from .run_settings import hyperparameters, run_name, setting
from .sender import NotInstalled, Tracker, first_line

_MOST_METRICS = 1000  # of one call, MLflow's limit
_MOST_PARAMETERS = 100
_LONGEST_VALUE = 500
_LONGEST_NAME = 250
_NOT_IN_A_NAME = re.compile(r"[^\w\-. /]")
_JOB = "smdp.job"
#: Answers that the same call would get again.
_FINAL = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST")


class MlflowRun(Tracker):
    """The server is SMDP_TRACKING_MLFLOW_URI, or MLFLOW_TRACKING_URI of MLflow itself."""

    name = "mlflow"

    def __init__(self) -> None:
        self._client: Any = None
        self._run: Optional[str] = None
        self._refused: Dict[str, str] = {}  # names of metrics, and MLflow's reasons

    def start(self) -> str:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise NotInstalled("mlflow is not installed: add mlflow to the source folder's requirements.txt") from None
        uri = setting("MLFLOW_URI")
        os.environ.setdefault(
            "MLFLOW_DISABLE_TELEMETRY", "true"
        )  # this process sends numbers only where it was asked to
        self._client = MlflowClient(tracking_uri=uri)
        title = setting("MLFLOW_EXPERIMENT") or "Default"
        if self._run is None:
            experiment = self._experiment(title)
            self._run = self._existing(experiment) or self._new(experiment)
        self._log_parameters()
        where = uri or os.environ.get("MLFLOW_TRACKING_URI") or "MLflow's default store, on this host"
        return f"run {run_name() or self._run} of experiment {title} in {where}"

    def send(self, reports: List[Report]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(_name(name), value, int(one.time * 1000), one.step)
            for one in reports
            for name, value in one.values.items()
        ]
        known = len(self._refused)
        for begin in range(0, len(metrics), _MOST_METRICS):
            self._log("metrics", metrics[begin : begin + _MOST_METRICS], self._refused)
        if len(self._refused) > known:
            self._say_refused("metrics", self._refused)

    def finish(self, succeeded: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if succeeded else "FAILED")

    def _experiment(self, title: str) -> str:
        found = self._client.get_experiment_by_name(title)
        if found is None:
            try:
                return str(self._client.create_experiment(title))
            except Exception:  # another job may have created it meanwhile
                found = self._client.get_experiment_by_name(title)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _existing(self, experiment: str) -> Optional[str]:
        """The run of this job before SageMaker restarted it on other hosts."""
        job = run_name()
        if job is None:
            return None
        found = self._client.search_runs([experiment], f"tags.`{_JOB}` = '{job}'", max_results=1)
        if not found:
            return None
        run = str(found[0].info.run_id)
        self._client.update_run(run, status="RUNNING")
        return run

    def _new(self, experiment: str) -> str:
        job = run_name()
        tags: Dict[str, str] = {"mlflow.runName": job, _JOB: job} if job is not None else {}
        return str(self._client.create_run(experiment, tags=tags).info.run_id)

    def _log_parameters(self) -> None:
        from mlflow.entities import Param

        values = {_name(name): value[:_LONGEST_VALUE] for name, value in hyperparameters().items()}
        parameters = [Param(name, value) for name, value in values.items()]
        refused: Dict[str, str] = {}
        for begin in range(0, len(parameters), _MOST_PARAMETERS):
            self._log("params", parameters[begin : begin + _MOST_PARAMETERS], refused)
        if refused:
            self._say_refused("parameters", refused)

    def _say_refused(self, what: str, refused: Dict[str, str]) -> None:
        names, reason = ", ".join(refused), next(iter(refused.values()))
        self.say(f"{len(refused)} {what} were refused, and are not in the run: {names[:300]}. The reason: {reason}")

    def _log(self, kind: str, entities: Sequence[Any], refused: Dict[str, str]) -> None:
        """Send all but what MLflow refuses. It refuses a whole call for one metric, so the halves are sent separately.

        Args:
            refused: names that are not sent. Refused names are added, so that each one costs further calls only once.
        """
        entities = [one for one in entities if one.key not in refused]
        if not entities:
            return
        try:
            self._client.log_batch(self._run, **{kind: entities})
        except Exception as error:
            if getattr(error, "error_code", None) not in _FINAL:
                raise
            if len(entities) > 1:
                middle = len(entities) // 2
                self._log(kind, entities[:middle], refused)
                self._log(kind, entities[middle:], refused)
                return
            refused[entities[0].key] = first_line(error)


def _name(name: str) -> str:
    """The name with ``_`` in place of what MLflow refuses: other characters, and paths that lead to another name."""
    parts = _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME].split("/")
    path = "/".join("_" * len(part) if part in (".", "..") else part for part in parts if part)
    return re.sub(r"^\.\.", "__", path) or "_"
