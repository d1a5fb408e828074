"""The documents say what is so: their commands run, their codes exist, their links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode
from tests.conftest import JOB, LAUNCHER, ROOT, clean_environment, write_job

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("containers/**/*.md")])


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{LAUNCHER.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=clean_environment(PATH=path),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_every_code_has_its_page_and_every_page_its_code() -> None:
    sources = [path.read_text() for path in (ROOT / "smdp_launch").rglob("*.py")]
    used = {code for text in sources for code in re.findall(r'"(SMDP\d{3})"', text)}
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "errors").glob("*.md")}
    assert used == set(pages)
    assert [code for code, text in pages.items() if not re.match(rf"# {code}: \S", text)] == []


def test_every_exit_code_is_documented() -> None:
    codes = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "exit-codes.md").read_text(), re.MULTILINE)
    assert [int(one) for one in codes] == [code.value for code in ExitCode]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [one for one in targets if not (page.parent / one).exists()] == []


def test_the_script_of_the_events_page_prints_what_it_says(tmp_path: Path) -> None:
    (code,) = blocks("docs/events.md", "python")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = ran.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith('{"smdp_event": 1, "event": "step"') for line in lines)


def test_the_entrypoints_page_names_every_variable_that_steers_it() -> None:
    package = ROOT / "containers" / "entrypoint" / "smdp_entrypoint"
    files = ("contract/settings.py", "contract/paths.py", "preparation.py")
    sources = "".join((package / name).read_text() for name in files)
    read = set(re.findall(r'"(SMDP_[A-Z_]+)"', sources))
    assert "SMDP_STOP_BUDGET" in read
    page = (ROOT / "containers" / "entrypoint" / "README.md").read_text()
    assert {name for name in read if f"`{name}`" not in page} == set()


def test_every_test_that_conformance_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "conformance.md").read_text()))
    folders = [ROOT / "tests", ROOT / "containers" / "entrypoint" / "tests", ROOT / "native" / "tests"]
    sources = [path.read_text() for folder in folders for path in folder.rglob("test_*.py")]
    there = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert named - there == set()
    assert len(named) > 60


def test_every_test_that_the_table_of_clients_names_is_there_and_the_table_is_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "client_table.py", "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
    rows = json.loads((ROOT / "tests" / "clients" / "clients.json").read_text())
    for row in rows:
        assert (row["tests"] == []) == (row["works"] == "not tested"), row["client"]
        for test in row["tests"]:
            file, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


@pytest.mark.parametrize(
    "page",
    [
        "docs/plan.md",
        "docs/local-runs.md",
        "docs/scale.md",
        pytest.param("docs/jobs.md", marks=pytest.mark.runs),
        pytest.param("docs/local-cloud.md", marks=pytest.mark.runs),
    ],
)
def test_the_commands_of_the_guides_run(page: str, tmp_path: Path) -> None:
    write_job(tmp_path)
    (script,) = blocks(page, "sh")
    ran = shell(script, tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.runs
@pytest.mark.torch
def test_the_readmes_job_runs_with_its_commands(tmp_path: Path) -> None:
    (tmp_path / "templates").symlink_to(ROOT / "templates")
    (tmp_path / "job.yaml").write_text(blocks("README.md", "yaml")[0])
    made = shell(f"{sys.executable} templates/scripts/prepare_mnist.py data/mnist", tmp_path)
    assert made.returncode == 0, made.stderr
    ran = shell(blocks("README.md", "sh")[1], tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "result  accuracy 0.9" in ran.stdout


# The guides, and which of their scripts run as the job of the page.
GUIDES = [
    pytest.param("docs/howto-ddp.md", 1, marks=pytest.mark.runs),
    # `make test-runs` trains with these scripts below, by torchrun.
    pytest.param("docs/howto-smdistributed.md", 0, marks=pytest.mark.soak),
    pytest.param("docs/howto-smdistributed.md", 2, marks=pytest.mark.soak),
]


def prepare_guide(page: str, script: int, folder: Path) -> None:
    """What the guide starts from: a script, its job file, and some data."""
    (folder / "scripts").mkdir()
    (folder / "scripts" / "train.py").write_text(blocks(page, "python")[script])
    (folder / "job.yaml").write_text(blocks(page, "yaml")[0])
    (folder / "data" / "train").mkdir(parents=True)
    (folder / "data" / "train" / "numbers.txt").write_text("".join(f"{number}\n" for number in range(1, 257)))


@pytest.mark.torch
def told_loss(page: str) -> str:
    """What the guide says all its scripts print."""
    found = re.findall(r"`(loss 0\.\d{6})`", (ROOT / page).read_text())
    assert len(found) == 1
    return str(found[0])


def torchrun(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    environment = clean_environment(**variables)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("page", "script"), GUIDES)
def test_the_job_of_a_guide_trains_with_its_commands(page: str, script: int, tmp_path: Path) -> None:
    prepare_guide(page, script, tmp_path)
    (commands,) = blocks(page, "sh")
    ran = shell(commands, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(rf"^algo-1:0 +\| {told_loss(page)}$", ran.stdout, re.MULTILINE)
    told = re.search(r"^model +(\S+)$", ran.stdout, re.MULTILINE)
    assert told is not None
    assert (tmp_path / told[1]).is_file()


# In 2 of 60 runs on a busy machine, PyTorch 2.13 with Gloo aborted when its thread gave the last tensor back while the
# interpreter ended: "terminate called without an active exception" below ProcessGroupGloo::runLoop.
WITHOUT_THE_INTERPRETERS_END = "import os, sys\nsys.stdout.flush()\nos._exit(0)\n"


@pytest.mark.runs
@pytest.mark.torch
def test_the_script_before_trains_too_and_differs_by_the_numbered_lines_alone(tmp_path: Path) -> None:
    before, after = blocks("docs/howto-ddp.md", "python")
    prepare_guide("docs/howto-ddp.md", 1, tmp_path)
    ran = torchrun(before + WITHOUT_THE_INTERPRETERS_END, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert told_loss("docs/howto-ddp.md") in ran.stdout.splitlines()
    assert (tmp_path / "model.pt").is_file()
    new = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line.partition("# ")[2][:2] for line in new] == ["1.", "2.", "3.", "4."]


@pytest.mark.runs
@pytest.mark.torch
def test_one_process_the_first_generation_and_the_backend_reach_one_loss(tmp_path: Path) -> None:
    page = "docs/howto-smdistributed.md"
    backend, alone, first_generation = blocks(page, "python")
    prepare_guide(page, 0, tmp_path)
    variables = {"SM_CHANNEL_TRAIN": str(tmp_path / "data" / "train"), "SM_MODEL_DIR": str(tmp_path)}
    command = [sys.executable, "-c", alone]
    ran = subprocess.run(command, env=clean_environment(**variables), capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == [told_loss(page)], ran.stderr
    for script in (first_generation, backend):
        (tmp_path / "model.pt").unlink()
        ran = torchrun(script, tmp_path, **variables, OMP_NUM_THREADS="1")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines() == [told_loss(page)]
        assert (tmp_path / "model.pt").is_file()
    numbered = [line for line in first_generation.splitlines() if "  # " in line]
    assert [line.partition("  # ")[2][:2] for line in numbered] == [f"{number}." for number in range(1, 9)]


@pytest.mark.parametrize("page", ["howto-ddp", "howto-smdistributed", "tutorial"])
def test_the_scripts_of_the_guides_use_the_gpus_and_share_the_data(page: str, tmp_path: Path) -> None:
    for script in blocks(f"docs/{page}.md", "python"):
        if "import smdistributed" in script:
            found = check_job(write_job(tmp_path, JOB, script), environ={}).diagnostics
            assert [one for one in found if one.code.startswith("SMDP44")] == []


def test_the_readmes_slip_is_told_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "templates").symlink_to(ROOT / "templates")
    text = blocks("README.md", "yaml")[0].replace("ml.p4d.24xlarge", "ml.p3.24xlarge")
    (tmp_path / "job.yaml").write_text(text)
    told = shell("smdp-launch validate", tmp_path).stderr
    assert told.startswith(blocks("README.md", "text")[0])


@pytest.mark.soak
@pytest.mark.torch
def test_the_tutorial_goes_from_its_script_to_its_model(tmp_path: Path) -> None:
    data, alone, *job = blocks("docs/tutorial.md", "sh")
    before, after = blocks("docs/tutorial.md", "python")
    (tmp_path / "train.py").write_text(before)
    ran = shell(data + alone.replace("python", sys.executable), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "epoch 20: loss 0.0" in ran.stdout
    (tmp_path / "train.py").write_text(after)
    ran = shell("".join(job), tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^step 20/20 +loss 0\.0", ran.stdout, re.MULTILINE)
    assert len(list(tmp_path.glob("smdp-results/*/model/model.pt"))) == 1
    numbered = [line.partition("  # ")[2][:2] for line in after.splitlines() if line not in before.splitlines()]
    assert [one for one in numbered if one] == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert "PASS  the job ended by itself, and its FailureReason names rank 3" in ran.stdout
