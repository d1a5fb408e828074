"""The section ``sweep``: which hyperparameter values are tried, and how the best ones are chosen."""

# No `from __future__ import annotations`: with it, pydantic compiles each string annotation at every start.
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints

from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.types import Expected, HyperparameterName, MetricName

#: What remains of the 32 characters of a tuning job's name besides "-<10 digits>-<4 hex>".
MAX_SWEEP_NAME = 16
#: Limits of SageMaker for the run time of a tuning job, in seconds.
SHORTEST_SWEEP, LONGEST_SWEEP = 120, 15_768_000

SweepBaseName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$", max_length=MAX_SWEEP_NAME),
    Expected(f"letters, digits and inner hyphens, {MAX_SWEEP_NAME} characters at most"),
]
TuningJobName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,31}$", max_length=32),
    Expected("the name of a tuning job, letters, digits and inner hyphens, 32 characters at most"),
]

Strategy = Literal["bayesian", "random", "grid", "hyperband"]


class IntegerRange(Section):
    min: Annotated[int, Field(ge=-(2**63), le=2**63 - 1, description="Smallest value.")]
    max: Annotated[int, Field(ge=-(2**63), le=2**63 - 1, description="Largest value.")]
    scaling: Annotated[
        Literal["auto", "linear", "logarithmic"], Field(description="The scale in which the range is searched.")
    ] = "auto"


class ContinuousRange(Section):
    min: Annotated[float, Field(description="Smallest value.")]
    max: Annotated[float, Field(description="Largest value.")]
    scaling: Annotated[
        Literal["auto", "linear", "logarithmic", "reverse_logarithmic"],
        Field(description="The scale in which the range is searched."),
    ] = "auto"


class Ranges(Section):
    integer: Annotated[
        dict[HyperparameterName, IntegerRange],
        Field(max_length=30, description="For each hyperparameter, a range of whole numbers."),
    ] = Field(default={})
    continuous: Annotated[
        dict[HyperparameterName, ContinuousRange],
        Field(max_length=30, description="For each hyperparameter, a range of numbers."),
    ] = Field(default={})
    categorical: Annotated[
        dict[HyperparameterName, Annotated[list[JsonValue], Field(min_length=1, max_length=30)]],
        Field(max_length=30, description="For each hyperparameter, a list of values. Each value keeps its type."),
    ] = Field(default={})


class Objective(Section):
    metric: Annotated[
        MetricName,
        Field(description="Name of a metric in `metrics`. The last value in the log of a trial is its result."),
    ]
    goal: Annotated[Literal["minimize", "maximize"], Field(description="Whether smaller or larger values are better.")]
    target: Annotated[float | None, Field(description="End the sweep when a trial reaches this value.")] = None


class SweepBudget(Section):
    max_run: Annotated[
        int | None,
        Field(
            ge=SHORTEST_SWEEP,
            le=LONGEST_SWEEP,
            description="Seconds after which the whole sweep is stopped, 120 to 15768000.",
        ),
    ] = None
    max_usd: Annotated[
        float | None,
        Field(gt=0, le=1e9, description="Maximum cost of all trials together, in USD."),
    ] = None


class Hyperband(Section):
    min_resource: Annotated[
        int | None, Field(ge=1, le=20_000, description="Number of epochs before which Hyperband stops no trial.")
    ] = None
    max_resource: Annotated[
        int | None, Field(ge=1, le=20_000, description="Number of epochs after which Hyperband stops every trial.")
    ] = None


class WarmStart(Section):
    parents: Annotated[
        list[TuningJobName], Field(min_length=1, max_length=5, description="Names of earlier tuning jobs.")
    ]
    type: Annotated[
        Literal["identical", "transfer"],
        Field(description="`identical`: the same data and image; `transfer`: the data and the image may differ."),
    ] = "identical"


class Sweep(Section):
    """`launch` starts a tuning job instead of one training job; each of its trials is a training job."""

    objective: Annotated[Objective, Field(description="The metric that decides which trial is the best.")]
    ranges: Annotated[Ranges, Field(description="The hyperparameters that differ between trials, by kind of range.")]
    name: Annotated[
        SweepBaseName | None,
        Field(
            description=(
                "Base name of the sweep; by default the job's name. A launch creates the sweep"
                " `BASE-<UTC time>-<4 hexadecimal digits>`."
            )
        ),
    ] = None
    strategy: Annotated[
        Strategy,
        Field(
            description=(
                "`bayesian`: values near those of good trials; `random`: random values; `grid`: each combination of the"
                " lists; `hyperband`: random values, and worse trials are stopped early."
            )
        ),
    ] = "bayesian"
    trials: Annotated[
        int | None,
        Field(
            ge=1, le=100_000, description="Number of trials. With `grid`, omit it, or write the number of combinations."
        ),
    ] = None
    parallel: Annotated[int, Field(ge=1, le=1000, description="Number of trials that run at the same time.")] = 1
    early_stopping: Annotated[
        Literal["off", "auto"],
        Field(description="`auto`: stop a trial whose metric is worse than the median of earlier trials."),
    ] = "off"
    budget: Annotated[SweepBudget, Field(description="Limits for all trials together.")] = SweepBudget()
    seed: Annotated[
        int | None,
        Field(ge=0, le=2**31 - 1, description="Seed of the random values; the same seed gives the same values."),
    ] = None
    hyperband: Annotated[Hyperband, Field(description="Limits of the strategy `hyperband`.")] = Hyperband()
    warm_start: Annotated[WarmStart | None, Field(description="Earlier sweeps whose results the sweep uses.")] = None
