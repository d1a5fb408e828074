"""`python -m smdp_launch.localcloud.runtime.tuning.supervisor TUNINGDIR` runs one tuning job: it starts its trials as
training jobs, reads their objective, and ends them.

Trials have supervisors of their own. This one needs the server only to create and to stop them.
"""

from __future__ import annotations

import os
import secrets
import time
import traceback
from typing import Any

from smdp_launch.localcloud import processes, tuning_state
from smdp_launch.localcloud.client.platform import Platform, PlatformError
from smdp_launch.localcloud.end_state import ENDED
from smdp_launch.localcloud.files import read_json, write_json
from smdp_launch.localcloud.layout import TuningFolder
from smdp_launch.localcloud.runtime.tuning.parents import completed
from smdp_launch.localcloud.runtime.tuning.trials import look, to_stop_early, trial_request
from smdp_launch.localcloud.runtime.tuning.values import most_trials, objective_of, trial_values
from smdp_launch.localcloud.started_supervisor import own_folder
from smdp_launch.localcloud.tuning_state import TrialRecord, TuningState

_TICK = 0.1
_EARLY_INTERVAL = 1.0  # seconds between searches for trials that early stopping ends
_QUOTA_PAUSE = 1.0  # seconds until a trial that the quota refused is tried again
_MOST_FAILURES = 5  # trials without a result before the tuning job fails, if none has one


class Supervisor:
    def __init__(self, folder: TuningFolder, state: TuningState, platform: Platform) -> None:
        self._folder = folder
        self._state = state
        self._platform = platform
        self._request: dict[str, Any] = read_json(folder.request)
        self._tags: dict[str, str] = read_json(folder.tags) or {}
        self._config = self._request["HyperParameterTuningJobConfig"]
        objective = objective_of(self._request)
        self._metric, self._goal = str(objective["MetricName"]), str(objective["Type"])
        self._done = completed(folder.state_folder, self._request)
        self._most = most_trials(self._request, self._done)
        self._parallel = int(self._config["ResourceLimits"]["MaxParallelTrainingJobs"])
        self._seed = folder.name
        self._began = time.monotonic()
        self._next_start = self._next_search = 0.0
        self._ending: tuple[str, str | None] | None = None  # status and reason, once no more trials start

    def run(self) -> None:
        """Run the tuning job until none of its trials runs."""
        while True:
            trials = self._update()
            running = [one for one in trials if one.status not in ENDED]
            self._ending = self._ending or self._reason_to_end(trials, running)
            if self._ending is not None:
                if not running:
                    self._state.end(*self._ending, time.time())
                    tuning_state.write(self._folder.state, self._state)
                    return
                self._stop(running)
            else:
                self._stop_early(trials)
                self._start(running)
            time.sleep(_TICK)

    def _update(self) -> list[TrialRecord]:
        """The trials as they are now. The end of a trial is recorded."""
        state = self._folder.state_folder
        trials = [look(state, one, self._metric) for one in self._state.trials]
        for index, one in enumerate(trials):
            if one.status is None:  # each trial in the record was created
                one.status, one.failure = "Failed", "The training job was deleted."
                self._write()
            if one.status in ENDED and self._state.trials[index].status is None:
                self._state.trials[index] = one
                self._write()
        return trials

    def _reason_to_end(self, trials: list[TrialRecord], running: list[TrialRecord]) -> tuple[str, str | None] | None:
        if self._folder.stop.exists():
            return "Stopped", None
        limit = self._config["ResourceLimits"].get("MaxRuntimeInSeconds")
        if limit is not None and time.monotonic() > self._began + limit:
            return "Completed", None
        ended = [one for one in trials if one.status in ENDED]
        succeeded = [one for one in ended if one.value is not None]
        if self._reaches_target(succeeded):
            return "Completed", None
        all_ended = len(trials) >= self._most and not running
        if not succeeded and self._most > 0 and (all_ended or len(ended) >= _MOST_FAILURES):
            return "Failed", (
                f"No training job succeeded after {len(ended)} attempts. For additional details, please take a look at "
                "the training job failures by listing training jobs for the hyperparameter tuning job."
            )
        return ("Completed", None) if all_ended else None

    def _reaches_target(self, succeeded: list[TrialRecord]) -> bool:
        target = self._config.get("TuningJobCompletionCriteria", {}).get("TargetObjectiveMetricValue")
        values = [one.value for one in succeeded if one.status == "Completed" and one.value is not None]
        if target is None:
            return False
        return any(one >= target if self._goal == "Maximize" else one <= target for one in values)

    def _start(self, running: list[TrialRecord]) -> None:
        """Start as many trials as may run at a time. One that the quota refuses is tried again while others run."""
        free = self._parallel - len(running)
        while free > 0 and len(self._state.trials) < self._most and time.monotonic() >= self._next_start:
            number = len(self._state.trials)
            earlier = [one.values for one in self._state.trials]
            values = trial_values(self._request, number, earlier, self._seed, self._done)
            name = f"{self._folder.name}-{number + 1:03d}-{secrets.token_hex(4)}"
            # Before the job exists: a trial that the record lacks would never be stopped.
            self._state.trials.append(TrialRecord(name, values, round(time.time(), 3)))
            self._write()
            try:
                self._platform.call("create_training_job", **trial_request(self._request, name, values, self._tags))
            except PlatformError as error:
                if error.code == "ResourceInUse":  # the answer of the first try was lost
                    continue
                self._state.trials.pop()
                self._write()
                if error.code == "ResourceLimitExceeded" and running:
                    self._next_start = time.monotonic() + _QUOTA_PAUSE
                    return
                self._ending = "Failed", f"{error.code}: {error}" if error.code else str(error)
                return
            free -= 1

    def _stop_early(self, trials: list[TrialRecord]) -> None:
        if self._config.get("TrainingJobEarlyStoppingType") != "Auto" or time.monotonic() < self._next_search:
            return
        self._next_search = time.monotonic() + _EARLY_INTERVAL
        self._stop(to_stop_early(self._folder.state_folder, trials, self._metric, self._goal))

    def _stop(self, trials: list[TrialRecord]) -> None:
        for one in trials:
            if one.status == "InProgress":
                try:
                    self._platform.call("stop_training_job", TrainingJobName=one.name)
                except PlatformError as error:
                    if error.code != "ValidationException":  # it has just ended
                        raise

    def _write(self) -> None:
        self._state.modified = round(time.time(), 3)
        tuning_state.write(self._folder.state, self._state)


def main() -> int:
    folder = own_folder(TuningFolder)
    write_json(folder.pid, {"pid": os.getpid()})
    state = tuning_state.read(folder.state)
    if state is None:
        return 1
    try:
        platform = Platform(folder.state_folder, folder.region)
        try:
            Supervisor(folder, state, platform).run()
        finally:
            platform.close()
    except (PlatformError, OSError):
        traceback.print_exc()
        return 1  # the server finalizes the job and stops its trials
    return 0


if __name__ == "__main__":
    processes.exit_fast(main())
