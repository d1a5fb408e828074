"""Weights & Biases: one run a job, by its own client."""

import os
from typing import Any, Dict, List

from .numbers import Report
from .run_settings import hyperparameters, run_name, setting
from .sender import NotInstalled, Tracker


class WandbRun(Tracker):
    """The project is SMDP_TRACKING_WANDB_PROJECT. The key is that of the client: WANDB_API_KEY, or the file .netrc.

    With WANDB_MODE=offline the run is written to the job's output, from where ``wandb sync`` sends it.
    """

    name = "wandb"

    def __init__(self) -> None:
        self._run: Any = None

    def start(self) -> str:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # the client's reports to its maker
        try:
            import wandb
        except ImportError:
            raise NotInstalled("wandb is not installed: add wandb to the source folder's requirements.txt") from None
        options: Dict[str, Any] = {"name": run_name(), "id": run_name()}
        is_offline = os.environ.get("WANDB_MODE") == "offline"
        if options["id"] is not None and not is_offline:
            options["resume"] = "allow"  # SageMaker may have restarted the job on other hosts
        output = os.environ.get("SM_OUTPUT_DATA_DIR")
        if is_offline and output and "WANDB_DIR" not in os.environ:
            options["dir"] = output
        wandb.setup()  # reads the key that wandb.sagemaker_auth() wrote into the source folder
        self._run = wandb.init(
            project=setting("WANDB_PROJECT"),
            entity=setting("WANDB_ENTITY"),
            config=hyperparameters(),
            settings=wandb.Settings(console="off", silent=True, sagemaker_disable=True),
            **{key: value for key, value in options.items() if value is not None},
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        return f"run {self._run.name} of project {self._run.project}, {self._run.url or 'offline in ' + self._run.dir}"

    def send(self, reports: List[Report]) -> None:
        for one in reports:
            self._run.log({**one.values, "step": one.step, "time": one.time})
            if one.is_result:
                self._run.summary.update(one.values)

    def finish(self, succeeded: bool) -> None:
        self._run.finish(exit_code=0 if succeeded else 1)
