"""Plans in files: a launch submits the output of ``plan --out`` byte for byte, or refuses it."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from smdp_launch.catalog.prices import PriceTable
from smdp_launch.checking.inputs import MB
from smdp_launch.draft.user_files import write_file
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.past_rehearsals import PastRehearsal
from smdp_launch.planning.plan import PLAN_VERSION, Plan
from smdp_launch.request.batch import workers_per_host
from smdp_launch.request.build import plan_hash
from smdp_launch.request.cost import priced_types
from smdp_launch.request.groups import host_count
from smdp_launch.request.ranks import rank_map
from smdp_launch.request.tuning import tuning_hash
from smdp_launch.saved_versions import UPGRADE, other_version
from smdp_launch.source.scan import SourceTree, normal_name, scan_source
from smdp_launch.source.script.outputs import output_folders

_MAX_BYTES = 16 << 20
_AGAIN = "write a new plan with plan --out"


def save(plan: Plan, path: Path) -> None:
    """Write ``plan`` to ``path``, readable only by its owner, because a plan contains account numbers and names.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    data = plan.to_json()
    data["source"]["folder"] = str(plan.source.folder.absolute())  # the plan can be launched from another folder
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    write_file(path, text, mode=0o600)


def is_saved_plan(path: Path) -> bool:
    """Whether ``path`` has a plan, which is JSON, and not a job file: the first character shows it."""
    try:
        with path.open("rb") as file:
            return path.suffix == ".json" and file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def load(path: Path) -> Plan:
    """Read the plan in ``path``.

    Raises:
        Refused: it is not a plan of this version, or the plan or its source folder has changed.
    """
    data = _read(path)
    try:
        spec = JobSpec.model_validate_json(json.dumps(data["spec"]))
        request, job, made = data["request"], str(data["job"]), datetime.fromisoformat(data["made"])
        folder, files, sha256 = Path(data["source"]["folder"]), data["source"]["files"], data["source"]["sha256"]
        arguments = tuple(str(one) for one in data["script_arguments"])
        plan = Plan(
            job=job,
            job_file=str(data["job_file"]),
            made=made,
            spec=spec,
            request=request,
            ranks=tuple(rank_map(spec.compute.instance_count, workers_per_host(spec), host_count(spec))),
            source=_scanned(folder, spec),
            script_arguments=arguments,
            prices=_prices(spec, data["billing"]),
            rehearsals=tuple(PastRehearsal.from_json(one) for one in data.get("rehearsals", [])),
            tuning=data.get("tuning"),
        )
        stated = plan.hash
    except ValidationError as error:
        raise Refused(_refusal_of_spec(path, error)) from None
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise Refused(
            f"{path} is not a complete plan ({type(error).__name__}: {error}); write a new one with plan --out"
        ) from None
    _refuse_changed_source(path, plan.source, sha256, {str(one["name"]): int(one["bytes"]) for one in files})
    if job != request.get("TrainingJobName") or _hash(plan) != stated or data["hash"] != stated:
        raise Refused(f"{path} was changed: its hash does not match its content; write a new plan with plan --out")
    return plan


def _hash(plan: Plan) -> str | None:
    """The hash of what a launch sends; None if its name is not the plan's."""
    if plan.tuning is None:
        return plan_hash(plan.request, plan.source)
    is_own = plan.tuning.get("HyperParameterTuningJobName") == plan.job
    return tuning_hash(plan.tuning, plan.source) if is_own else None


def _refusal_of_spec(path: Path, error: ValidationError) -> str:
    """A later version may add settings of a job without a new version of the plan. To ignore one would be wrong."""
    first = error.errors()[0]
    setting = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"{path} has the setting {setting}, which this smdp-launch does not know: {UPGRADE}, or {_AGAIN}"
    return f"{path} is not a complete plan ({setting}: {first['msg']}); {_AGAIN}"


def _prices(spec: JobSpec, billing: dict[str, Any]) -> PriceTable | None:
    """The price in the plan, for each type. The price table itself may have changed."""
    if billing["price"] is None:
        return None
    source, _, day = str(billing["price_source"]).rpartition(", ")
    price = float(billing["price"])
    return PriceTable(date.fromisoformat(day), source, {spec.region: dict.fromkeys(priced_types(spec), price)})


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()[: _MAX_BYTES + 1]
        data = json.loads(raw) if len(raw) <= _MAX_BYTES else None
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or "plan" not in data:
        raise Refused(f"{path} is not a plan of smdp-launch; write one with plan --out")
    reason = other_version(path, data["plan"], PLAN_VERSION, _AGAIN)
    if reason is not None:
        raise Refused(reason)
    if data.get("local") is not None or data.get("request") is None:
        raise Refused(f"{path} is not the plan of a launch on AWS")
    return data


def require_unchanged(plan: Plan) -> None:
    """Check the source folder.

    Raises:
        Refused: it has changed since ``plan`` was made.
    """
    now = _scanned(plan.source.folder, plan.spec)
    then = {one.name: one.size for one in plan.source.files}
    _refuse_changed_source(f"the plan of {plan.job}", now, plan.source.sha256, then)


def _scanned(folder: Path, spec: JobSpec) -> SourceTree:
    limit = spec.script.source_limit_mb * MB
    return scan_source(folder, limit, output_folders(folder, normal_name(spec.script.entry)))


def _refuse_changed_source(path: Path | str, now: SourceTree, sha256: str, then: dict[str, int]) -> None:
    if now.exists and now.sha256 == sha256:
        return
    if not now.exists:
        raise Refused(f"the source folder {now.folder} of {path} does not exist any more")
    sizes = {one.name: one.size for one in now.files}
    changed = sorted(name for name in {*sizes, *then} if sizes.get(name) != then.get(name))
    empty = f"empty now: {', '.join(now.empty_folders[:5]) or 'none'}"
    what = ", ".join(changed[:5]) if changed else f"the content or mode of a file, or an empty folder ({empty})"
    raise Refused(f"the source folder {now.folder} changed since {path} was made: {what}; make a new plan")
