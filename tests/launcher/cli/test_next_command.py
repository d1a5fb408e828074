"""Each command suggests the next one, typing errors get a suggestion, and NO_COLOR is respected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.cli.main import COMMANDS
from smdp_launch.errors import ExitCode
from smdp_launch.localcloud.client.variables import STATE
from tests.conftest import JOB, Command, clean_environment, write_job
from tests.support.services.cloud import Cloud, as_the_service
from tests.support.services.faulty_service import cloud_with_data
from tests.support.services.registry import Server, server
from tests.support.terminal import STAYS, last_lines, on_a_terminal
from tests.support.waiting import wait_for

__all__ = ["server"]

INVALID = JOB.replace("name: small", "nme: small")
WORKS = "import os\nopen(os.path.join(os.environ['SM_MODEL_DIR'], 'model.txt'), 'w').write('trained')\n"
CHECKPOINT = f'{JOB}checkpoint: {{s3: "s3://bucket/checkpoints"}}\n'
SAVES = "open('/opt/ml/checkpoints/step-1', 'w').write('saved')\n"
FAILS = "raise ValueError('no such luck')\n"
HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
RUNS = pytest.mark.runs
SMALL_REHEARSAL = ["--hosts", "2", "--workers-per-host", "1"]

#: Arguments, job file, script, and a part of the last lines.
ENDS = [
    (["init", "src", "--output", "new.yaml", "--entry", "train.py"], JOB, "import torch\n", "next: smdp-launch "),
    (["init"], JOB, WORKS, "add --force to overwrite it"),
    (["validate"], JOB, WORKS, "next: smdp-launch plan"),
    (["validate"], INVALID, WORKS, "smdp-launch explain SMDP"),
    (["plan"], JOB, WORKS, "next: smdp-launch launch --local, then without --local on AWS"),
    (["plan"], JOB.replace("local: {channels: {train: data}}", ""), WORKS, " --local --data train=FOLDER, then"),
    (["plan"], JOB.replace("train: data}", "train: nowhere}"), WORKS, "next: smdp-launch launch\n"),
    (["plan", "--origins"], JOB, WORKS, "next: smdp-launch launch"),
    (["plan", "--out", "plan.json"], JOB, WORKS, "next: smdp-launch launch plan.json"),
    (["plan"], INVALID, WORKS, "smdp-launch explain SMDP"),
    (
        ["scale", "--trace", "mask-rcnn", "--hosts", "1"],
        JOB,
        WORKS,
        "plan --set compute.instance_count=1\n",
    ),
    (["scale"], JOB, WORKS, "add --step-time SECONDS"),
    (["schema"], JOB, WORKS, "next: smdp-launch schema --output"),
    (["schema", "--output", "job.schema.json"], JOB, WORKS, "next: name it in a job file's first line"),
    (["export", "--to", "pipeline"], JOB, WORKS, "next: aws sagemaker create-pipeline --region us-east-1 "),
    (["export", "--to", "airflow"], JOB, WORKS, "next: give these arguments to SageMakerTrainingOperator"),
    (["launch", "--dry-run"], JOB, WORKS, "next: smdp-launch launch\n"),
    ([*HERE, "--dry-run"], JOB, WORKS, "next: smdp-launch launch --local --hosts 1 --workers-per-host 1\n"),
    (["probe", "--dry-run"], JOB, WORKS, "next: smdp-launch probe\n"),
    (["probe", "--local"], JOB, WORKS, "such as --network 1gbit"),
    (HERE, JOB, WORKS, "next   smdp-launch download\n"),
    ([*HERE, "--detach"], JOB, WORKS, "next: smdp-launch follow\n"),
    *[
        ([verb], JOB, WORKS, "give the name of one")
        for verb in ("follow", "status", "logs", "stop", "resume", "download", "metrics", "diagnose", "size", "report")
    ],
    (["checkpoints"], JOB, WORKS, "give the name of one"),
    (["deploy"], JOB, WORKS, "give the name of one"),
    (["invoke", "request.json"], JOB, WORKS, "`smdp-launch deploy` deploys the latest job"),
    (["undeploy"], JOB, WORKS, "`smdp-launch deploy` deploys the latest job"),
    (["endpoints"], JOB, WORKS, "next: smdp-launch deploy\n"),
    (["trials"], JOB, WORKS, "give the name of one"),
    (["compare", "one", "two"], JOB, WORKS, "give --region for a job"),
    (["cost"], JOB, WORKS, "next: smdp-launch launch\n"),
    (["list"], JOB, WORKS, "next: smdp-launch launch --local, then without --local on AWS"),
    (HERE, JOB, FAILS, "next    fix the cause, then: smdp-launch launch --local\n"),
    (["launch"], JOB, WORKS, "add --yes"),
    (["preflight", "--ignore", "SMDP300"], JOB, WORKS, "one of SMDP811"),
    (["doctor", "--json", "--report"], JOB, WORKS, "pass one of them"),
    (["local", "status"], JOB, WORKS, "next: smdp-launch local up\n"),
    (["local", "down", "--user"], JOB, WORKS, "next: smdp-launch local up --user\n"),
    (["explain"], JOB, WORKS, "next: smdp-launch explain SMDP"),
    (["explain", "301"], JOB, WORKS, "next: smdp-launch validate"),
    (["catalog", "instances"], JOB, WORKS, "next: smdp-launch catalog frameworks"),
    (["rehearse", "late", *SMALL_REHEARSAL, "--for", "0"], JOB, WORKS, "next: smdp-launch plan"),
    (["catalog", "frameworks"], JOB, WORKS, "next: smdp-launch catalog images"),
    (["catalog", "prices", "--region", "sa-east-1"], JOB, WORKS, "catalog prices --region sa-east-1 --update"),
    (["catalog", "images", "--region", "us-east-1"], JOB, WORKS, "then: smdp-launch validate"),
]
OUTPUT = "import os\nopen(os.path.join(os.environ['SM_OUTPUT_DATA_DIR'], 'scores'), 'w').write('1')\n"
#: Other outcomes of local runs.
MORE_ENDS = [
    (HERE, JOB, "print('no model')\n", "docs/how-to/ddp.md, change 4), then: smdp-launch launch --local\n"),
    (HERE, JOB, OUTPUT, "next  smdp-launch launch\n"),
    (HERE, JOB.replace("123456789012", "0" * 12), OUTPUT, "image, role in job.yaml, then: smdp-launch launch\n"),
    (["rehearse", "kill", *SMALL_REHEARSAL], JOB, WORKS, "rehearse kill --after 5\n"),  # it has no steps
]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("next") / "state") as made:
        yield made


@pytest.fixture
def state(cloud: Cloud) -> dict[str, str]:
    """The variables that make local runs share one local cloud."""
    return {STATE: str(cloud.state_dir)}


@pytest.mark.parametrize(
    ("arguments", "job", "script", "named"),
    [*ENDS, *(pytest.param(*one, marks=RUNS) for one in MORE_ENDS)],
    ids=range(len(ENDS) + len(MORE_ENDS)),
)
def test_command_suggests_the_next_and_prints_no_colours_in_a_pipe(
    smdp_launch: Command,
    job_folder: Path,
    state: dict[str, str],
    arguments: list[str],
    job: str,
    script: str,
    named: str,
) -> None:
    write_job(job_folder, job, script)
    variables = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **(state if "--local" in arguments else {})}
    ran = smdp_launch(*arguments, env=clean_environment(**variables))
    assert named in last_lines(ran)
    assert "\x1b" not in ran.stdout + ran.stderr


def test_inspection_suggests_the_next_command(smdp_launch: Command, server: Server) -> None:
    ran = smdp_launch("image", "inspect", server.put_image())
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert last_lines(ran).endswith("next: set `image:` in job.yaml to the URI, then: smdp-launch validate\n")


@RUNS
@pytest.mark.parametrize(("script", "code"), [(WORKS, ExitCode.OK), (FAILS, ExitCode.JOB_FAILED)])
def test_job_on_aws_suggests_the_next_command(
    smdp_launch: Command, job_folder: Path, tmp_path: Path, cloud: Cloud, script: str, code: ExitCode
) -> None:
    write_job(job_folder, JOB.replace("instance_count: 2", "instance_count: 1"), script)
    ran = smdp_launch("launch", "--yes", env=as_the_service(cloud.endpoint, tmp_path))
    assert ran.returncode == code, ran.stderr
    expected = r"next +fix the cause, then: smdp-launch launch\n"
    if code == ExitCode.OK:
        expected = r"next +smdp-launch download\n"
    assert re.search(expected + r"\Z", ran.stdout)


@pytest.mark.parametrize(
    ("job", "saves", "then"),
    [
        (JOB, "", "smdp-launch launch --local"),
        (CHECKPOINT, "", "smdp-launch launch --local"),
        pytest.param(CHECKPOINT, SAVES, "smdp-launch resume", marks=RUNS),
    ],
    ids=["no location", "no checkpoints", "checkpoints"],
)
def test_all_commands_suggest_the_same_next_after_a_stop(
    smdp_launch: Command, job_folder: Path, state: dict[str, str], job: str, saves: str, then: str
) -> None:
    write_job(job_folder, job, saves + STAYS)
    environment = clean_environment(**state)
    assert smdp_launch(*HERE, "--detach", env=environment).returncode == ExitCode.OK
    wait_for(lambda: "stays" in smdp_launch("logs", env=environment).stdout, "the script")
    (output,) = Path(state["SMDP_LOCAL_STATE"]).glob("jobs/*/hosts/algo-1/ml/output")
    stopped = smdp_launch("stop", env=environment)
    assert last_lines(stopped).endswith("next: smdp-launch follow\n")
    (output / "leave").touch()
    followed = smdp_launch("follow", env=environment)
    assert followed.returncode == ExitCode.JOB_STOPPED, followed.stdout + followed.stderr
    assert re.search(rf"next +{then}\n\Z", followed.stdout)
    for verb in ("status", "logs", "stop"):
        assert last_lines(smdp_launch(verb, env=environment)).endswith(f"next: {then}\n"), verb


@RUNS
@pytest.mark.parametrize(
    ("script", "then"),
    [
        (f"{SAVES}import os\nos.kill(os.getpid(), 9)\n", "smdp-launch resume"),
        ("import os\nos.kill(os.getpid(), 9)\n", "smdp-launch launch --local"),
        (FAILS, "fix the cause, then: smdp-launch launch --local"),
        (
            SAVES + FAILS,
            "fix the cause, then: smdp-launch launch --local (from the beginning), "
            "or smdp-launch resume (from the newest checkpoint, with the old source)",
        ),
    ],
    ids=["from outside", "from outside, nothing saved", "script, nothing saved", "script"],
)
def test_failed_job_with_checkpoints_can_be_resumed(
    smdp_launch: Command, job_folder: Path, state: dict[str, str], script: str, then: str
) -> None:
    write_job(job_folder, CHECKPOINT, script)
    ran = smdp_launch(*HERE, env=clean_environment(**state))
    assert re.search(rf"next +{re.escape(then)}\n\Z", ran.stdout), ran.stdout
    assert last_lines(smdp_launch("logs", env=clean_environment(**state))).endswith(f"next: {then}\n")


def test_next_command_is_tested_for_every_command() -> None:
    tested = {arguments[0] for arguments, *_ in ENDS} | {"image"}  # which have their own tests
    assert tested == set(COMMANDS) - {"completion"}  # its next step is a line in a file: test_completion.py


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["vaildate"], "did you mean validate?"),
        (["catalog", "framework"], "did you mean frameworks?"),
        (["preflihgt"], "did you mean preflight?"),
        (["local", "stauts"], "did you mean status?"),
        (["image", "inspct"], "did you mean inspect?"),
        (["validate", "--jsn"], "--json"),
        (["plan", "--orgins"], "--origins"),
        (["launch", "--worker-per-host", "2"], "--workers-per-host"),
        (["init", "--ouput", "x"], "--output"),
        (["catalog", "instances", "--polcy", "strict"], "--policy"),
        (["catalog", "instances", "--policy", "strickt"], "did you mean strict?"),
        (["catalog", "images", "--region", "us-esat-1"], "did you mean us-east-1?"),
        (["image", "build", "--clpu"], "--cpu"),
        (["explain", "SMPD301"], "did you mean SMDP301?"),
        (["xyzzy"], "one of init, validate, plan"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_typing_error_gets_a_suggestion(smdp_launch: Command, arguments: list[str], guess: str) -> None:
    ran = smdp_launch(*arguments)
    assert ran.returncode == ExitCode.USAGE
    assert ran.stdout == ""
    assert guess in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate"],
        ["plan", "--origins"],
        ["explain", "301"],
        ["catalog", "instances"],
        ["launch", "--dry-run"],
        pytest.param(HERE, marks=RUNS),
    ],
    ids=lambda one: " ".join(one)[:30],
)
def test_no_color_disables_colours_on_a_terminal(job_folder: Path, state: dict[str, str], arguments: list[str]) -> None:
    write_job(job_folder, INVALID if arguments == ["validate"] else JOB, WORKS)
    assert "\x1b" in on_a_terminal(job_folder, arguments, **state)
    assert "\x1b" not in on_a_terminal(job_folder, arguments, NO_COLOR="1", **state)
