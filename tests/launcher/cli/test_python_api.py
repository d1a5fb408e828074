"""The Python API: names, guide, docstrings and imports."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import smdp_launch
from smdp_launch import api
from smdp_launch.planning.plan import LocalRun, Plan
from tests.conftest import JOB, ROOT, write_job

GUIDE = ROOT / "docs" / "how-to" / "python.md"


@pytest.fixture(autouse=True)
def in_the_jobs_folder(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)


def failures(test: doctest.DocTest) -> str:
    output: list[str] = []
    doctest.DocTestRunner().run(test, out=output.append, clear_globs=False)
    return "".join(output)


def test_code_of_the_guide_gives_the_printed_output() -> None:
    code = "".join(re.findall(r"^```python\n(>>> .*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(code, {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) > 10
    assert failures(test) == ""


@pytest.mark.parametrize("name", ["validate", "load", "plan", "launch"])
def test_code_of_docstrings_gives_the_printed_output(name: str) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(api, name), name, api, globs=dict(vars(api)))
    assert test.examples
    assert failures(test) == ""


def test_guide_lists_exactly_the_public_names() -> None:
    names = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(smdp_launch.__all__)


def test_public_names_can_be_imported() -> None:
    values = {name: getattr(smdp_launch, name) for name in smdp_launch.__all__}
    assert [name for name, value in values.items() if value is None or isinstance(value, ModuleType)] == []
    with pytest.raises(AttributeError, match="lauch"):
        smdp_launch.lauch  # noqa: B018 - the access is tested


def test_import_loads_no_third_party_library() -> None:
    program = "import sys, smdp_launch; print(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "ruamel", "rich", "click", "botocore", "packaging", "pathspec", "platformdirs"}
    assert heavy & set(ran.stdout.split()) == set()


def test_former_names_of_a_job_still_work() -> None:
    job = smdp_launch.Job("small-1", "us-east-1", None, lambda: nullcontext(SimpleNamespace()))  # type: ignore[arg-type]
    reported: list[object] = []
    job.tell = reported.append
    with job.reached() as clients:
        clients.on_waiting("busy")  # type: ignore[arg-type]
    assert reported == ["busy"]
    assert job.on_waiting == job.tell
    assert smdp_launch.Reached is smdp_launch.ServiceRecovered


def test_refusal_has_one_line_with_place_and_help_for_each_error(job_folder: Path) -> None:
    wrong = JOB.replace("instance_type:", "instance_typ:").replace("max_run: 600", "max_run: soon")
    write_job(job_folder, f"{wrong}silence: [SMDP440]\n")
    with pytest.raises(smdp_launch.JobFileRefused) as refused:
        smdp_launch.plan("job.yaml")
    assert any(one.severity is smdp_launch.Severity.ERROR for one in refused.value.diagnostics)
    first, *_ = str(refused.value).splitlines()
    assert re.fullmatch(
        r'error\[SMDP201\] job\.yaml:\d+:\d+: unknown key "instance_typ" in compute; '
        r'help: did you mean "instance_type"\?',
        first,
    )


def test_refusal_leaves_out_warnings_and_shows_newlines_as_one_line() -> None:
    warning = smdp_launch.Diagnostic("SMDP440", "a warning", severity=smdp_launch.Severity.WARNING)
    errors = [smdp_launch.Diagnostic("SMDP201", 'key "a\nb"; unknown'), smdp_launch.Diagnostic("SMDP202", "no name")]
    refused = smdp_launch.JobFileRefused([warning, *errors])
    assert str(refused).splitlines() == ['error[SMDP201]: key "ab"; unknown', "error[SMDP202]: no name"]
    assert refused.diagnostics == [warning, *errors]


def test_settings_can_be_a_mapping() -> None:
    hyperparameters = {"epochs": "2", "prompt": "\N{ROCKET}"}
    settings = {"compute.instance_count": 3, "script.hyperparameters": hyperparameters, "script.source": Path("src")}
    spec = smdp_launch.load("job.yaml", settings=settings)
    assert (spec.compute.instance_count, spec.script.hyperparameters) == (3, hyperparameters)
    with pytest.raises(ValueError, match="not JSON compliant"):
        smdp_launch.load("job.yaml", settings={"script.hyperparameters.lr": float("inf")})


@pytest.mark.parametrize("name", ["validate", "load", "plan", "launch"])
def test_settings_in_one_text_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=re.escape('settings must be a list, such as ["compute.max_run=60"]')):
        getattr(smdp_launch, name)("job.yaml", settings="compute.max_run=60")


@pytest.mark.parametrize("option", ["hosts", "workers_per_host"])
@pytest.mark.parametrize("number", [0, -1])
def test_local_run_of_fewer_than_one_host_or_worker_is_refused(option: str, number: int) -> None:
    with pytest.raises(ValueError, match=f"{option} must be 1 or more"):
        smdp_launch.plan("job.yaml", local=True, **{option: number})  # type: ignore[arg-type]


def test_launch_of_placeholders_names_an_option_that_launch_has(
    job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(job_folder, JOB.replace("region: us-east-1", "region: xx-placeholder-1"))
    with pytest.raises(smdp_launch.Refused, match="local=True runs the job as it is"):
        smdp_launch.launch("job.yaml")
    launched: list[LocalRun | None] = []

    def refuse(plan: Plan, *_: object) -> None:
        launched.append(plan.local)
        raise smdp_launch.Refused("not now")

    monkeypatch.setattr(api, "_launch", refuse)
    for launch, error in ((smdp_launch.launch, "not now"), (smdp_launch.launch_sweep, "no section sweep")):
        with pytest.raises(smdp_launch.Refused, match=error):
            launch("job.yaml", settings={"compute.max_run": 60}, local=True, hosts=3, workers_per_host=2)
    assert [(one.hosts, one.workers_per_host) for one in launched if one is not None] == [(3, 2)]


def test_options_of_a_plan_are_refused_where_they_cannot_apply() -> None:
    made = smdp_launch.plan("job.yaml")
    with pytest.raises(ValueError, match=re.escape("a plan is final: pass local and hosts to plan()")):
        smdp_launch.launch(made, local=True, hosts=0)
    with pytest.raises(ValueError, match="wait_for_capacity takes no local"):
        smdp_launch.launch("job.yaml", local=True, wait_for_capacity=60)


def test_local_plan_names_the_engine_that_replaces_the_library_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["engine=smdistributed", "image=null"]

    def note() -> str:
        local = smdp_launch.plan("job.yaml", settings=settings, local=True).local
        (text,) = [one for one in (local.not_simulated if local else ()) if one.startswith("engine smdistributed: ")]
        return text

    monkeypatch.setattr("smdp_launch.doctor.packages.is_installed", lambda _: True)
    assert note().endswith(": the native engine replaces AWS's library and sums on the CPUs")
    monkeypatch.setattr("smdp_launch.doctor.packages.is_installed", lambda _: False)
    assert "so a script that imports the library fails; to install the engine, run: " in note()
