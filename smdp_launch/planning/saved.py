"""A plan in a file: what ``plan --out`` wrote is submitted byte for byte, or not at all."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from smdp_launch.catalog.prices import PriceTable
from smdp_launch.checking.inputs import MB
from smdp_launch.disk import why
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.plan import PLAN_VERSION, Plan
from smdp_launch.planning.rehearsed import Rehearsed
from smdp_launch.request.batch import workers_per_host
from smdp_launch.request.build import plan_hash
from smdp_launch.request.cost import instance_types
from smdp_launch.request.ranks import rank_map
from smdp_launch.source.scan import SourceTree, normal_name, scan_source
from smdp_launch.source.script.outputs import output_folders

_LARGEST = 16 << 20


def save(plan: Plan, path: Path) -> None:
    """Write ``plan`` to ``path``, which only its owner may read: a plan holds account numbers and names.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    data = plan.to_json()
    data["source"]["folder"] = str(plan.source.folder.absolute())  # it may be launched from elsewhere
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    try:
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written: {why(error, path)}") from error


def is_saved_plan(path: Path) -> bool:
    """A plan is JSON and a job file is YAML: the first character tells."""
    try:
        with path.open("rb") as file:
            return path.suffix == ".json" and file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def load(path: Path) -> Plan:
    """The plan in ``path``, if it still is what would be submitted.

    Raises:
        Refused: it is no plan of this version, was changed, or the source folder was.
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
            ranks=tuple(rank_map(spec.compute.instance_count, workers_per_host(spec))),
            source=_scanned(folder, spec),
            script_arguments=arguments,
            prices=_prices(spec, data["billing"]),
            rehearsals=tuple(Rehearsed.of(one) for one in data.get("rehearsals", [])),
        )
        stated = plan.hash
    except (KeyError, TypeError, ValueError, StopIteration, ValidationError) as error:
        raise Refused(
            f"{path} is no whole plan ({type(error).__name__}: {error}); make it anew with plan --out"
        ) from None
    _refuse_changed_source(path, plan.source, sha256, {str(one["name"]): int(one["bytes"]) for one in files})
    if job != request.get("TrainingJobName") or plan_hash(request, plan.source) != stated or data["hash"] != stated:
        raise Refused(f"{path} was changed after it was made: its hash does not fit; make it anew with plan --out")
    return plan


def _prices(spec: JobSpec, billing: dict[str, Any]) -> PriceTable | None:
    """The price that the plan was made with; the table itself may have changed since."""
    if billing["price"] is None:
        return None
    source, _, day = str(billing["price_source"]).rpartition(", ")
    price = float(billing["price"])
    return PriceTable(date.fromisoformat(day), source, {spec.region: dict.fromkeys(instance_types(spec), price)})


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()[: _LARGEST + 1]
        data = json.loads(raw) if len(raw) <= _LARGEST else None
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or "plan" not in data:
        raise Refused(f"{path} is no plan of smdp-launch; plan --out writes one")
    if data["plan"] != PLAN_VERSION:
        raise Refused(f"{path} is a plan of form {data['plan']!r}, and this version reads {PLAN_VERSION}: make it anew")
    if data.get("local") is not None or data.get("request") is None:
        raise Refused(f"{path} is not the plan of a launch on AWS")
    return data


def require_unchanged(plan: Plan) -> None:
    """Raises:
    Refused: the source folder is no longer what ``plan`` was made of.
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
        raise Refused(f"the source folder {now.folder} of {path} is gone")
    sizes = {one.name: one.size for one in now.files}
    changed = sorted(name for name in {*sizes, *then} if sizes.get(name) != then.get(name))
    what = ", ".join(changed[:5]) if changed else "the content or mode of a file"
    raise Refused(f"the source folder {now.folder} changed since {path} was made: {what}; make the plan anew")
