"""The documentation is true: its commands run, its codes exist, its links have targets, its lists fit the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode
from tests.conftest import JOB, ROOT, clean_environment, write_job
from tests.support.doc_examples import blocks, shell

#: Files that the reader of CONTRIBUTING.md creates; NAME stands for a name of the reader's choice.
CREATED = {
    "docs/errors/SMDP699.md",
    "smdp_launch/localcloud/services/keys.py",
    "smdp_launch/rules/request/naming.py",
    "tests/localcloud/calls/test_keys.py",
}
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("containers/**/*.md")])


def test_every_code_has_one_page_and_every_page_one_code() -> None:
    packages = (ROOT / "smdp_launch", ROOT / "containers" / "entrypoint" / "smdp_entrypoint")
    sources = [path.read_text() for package in packages for path in package.rglob("*.py")]
    used = {code for text in sources for code in re.findall(r'"(SMDP\d{3})"', text)}
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "errors").glob("*.md")}
    assert used == set(pages)
    assert [code for code, text in pages.items() if not re.match(rf"# {code}: \S", text)] == []


def test_every_exit_code_is_documented() -> None:
    codes = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "reference" / "exit-codes.md").read_text(), re.MULTILINE)
    assert [int(one) for one in codes] == [code.value for code in ExitCode]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [one for one in targets if not (page.parent / one).exists()] == []


def test_script_of_events_page_prints_three_step_events(tmp_path: Path) -> None:
    (code,) = blocks("docs/reference/events.md", "python")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = ran.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith('{"smdp_event": 1, "event": "step"') for line in lines)


def test_entrypoint_page_names_every_variable_that_configures_it() -> None:
    package = ROOT / "containers" / "entrypoint" / "smdp_entrypoint"
    files = ("contract/settings.py", "contract/paths.py", "preparation.py")
    sources = "".join((package / name).read_text() for name in files)
    read = set(re.findall(r'"(SMDP_[A-Z_]+)"', sources))
    assert "SMDP_STOP_BUDGET" in read
    page = (ROOT / "containers" / "entrypoint" / "README.md").read_text()
    assert {name for name in read if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("page", [one for one in PAGES if one.name != "CHANGELOG.md"], ids=lambda one: one.stem)
def test_files_named_in_pages_exist(page: Path) -> None:
    folders = "containers|docs|native|smdp_launch|templates|tests|tools"
    files = rf"(?<![\w/.-])((?:{folders})/[\w./-]+\.(?:cc|h|json|md|py|sh|yaml))\b"
    named = {one for one in re.findall(files, page.read_text()) if "NAME" not in one}
    assert {one for one in named - CREATED if not (ROOT / one).exists()} == set()


def test_every_test_named_in_conformance_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reference" / "conformance.md").read_text()))
    folders = [ROOT / "tests", ROOT / "containers" / "entrypoint" / "tests", ROOT / "native" / "tests"]
    sources = [path.read_text() for folder in folders for path in folder.rglob("test_*.py")]
    there = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert named - there == set()
    assert len(named) > 60


def test_package_lists_of_architecture_page_match_the_code() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "architecture_page.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_client_table_is_current_and_its_tests_exist() -> None:
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
        "docs/reference/plan.md",
        "docs/how-to/local-runs.md",
        "docs/how-to/scale.md",
        pytest.param("docs/how-to/jobs.md", marks=pytest.mark.runs),
        pytest.param("docs/how-to/local-cloud.md", marks=pytest.mark.runs),
    ],
)
def test_commands_of_guide_succeed(page: str, tmp_path: Path) -> None:
    write_job(tmp_path)
    (script,) = blocks(page, "sh")
    ran = shell(script, tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.runs
@pytest.mark.torch
def test_readme_job_trains_with_readme_commands(tmp_path: Path) -> None:
    (tmp_path / "templates").symlink_to(ROOT / "templates")
    (tmp_path / "job.yaml").write_text(blocks("README.md", "yaml")[0])
    prepared = shell(f"{sys.executable} templates/scripts/prepare_mnist.py data/mnist", tmp_path)
    assert prepared.returncode == 0, prepared.stderr
    ran = shell(blocks("README.md", "sh")[1], tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^result +accuracy 0\.9", ran.stdout, re.MULTILINE)


# The guides, and the index of each script that runs as the job of its page.
GUIDES = [
    pytest.param("docs/how-to/ddp.md", 1, marks=pytest.mark.runs),
    # `make test-runs` trains with these scripts by torchrun, in a test below.
    pytest.param("docs/how-to/smdistributed.md", 0, marks=pytest.mark.soak),
    pytest.param("docs/how-to/smdistributed.md", 2, marks=pytest.mark.soak),
]


def prepare_guide(page: str, script: int, folder: Path) -> None:
    """Write the script, the job file and the data of the guide."""
    (folder / "scripts").mkdir()
    (folder / "scripts" / "train.py").write_text(blocks(page, "python")[script])
    (folder / "job.yaml").write_text(blocks(page, "yaml")[0])
    (folder / "data" / "train").mkdir(parents=True)
    (folder / "data" / "train" / "numbers.txt").write_text("".join(f"{number}\n" for number in range(1, 257)))


def expected_loss(page: str) -> str:
    """Return the loss that all scripts of the guide print."""
    (loss,) = re.findall(r"`(loss 0\.\d{6})`", (ROOT / page).read_text())
    return str(loss)


def torchrun(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    environment = clean_environment(**variables)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("page", "script"), GUIDES)
def test_guide_job_trains_with_guide_commands(page: str, script: int, tmp_path: Path) -> None:
    prepare_guide(page, script, tmp_path)
    (commands,) = blocks(page, "sh")
    ran = shell(commands, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(rf"^algo-1:0 +\| {expected_loss(page)}$", ran.stdout, re.MULTILINE)
    model = re.search(r"^model +(\S+)$", ran.stdout, re.MULTILINE)
    assert model is not None
    assert (tmp_path / model[1]).is_file()


# In 2 of 60 runs on a busy machine, PyTorch 2.13 with Gloo aborted when its thread freed the last tensor while the
# interpreter exited: "terminate called without an active exception" below ProcessGroupGloo::runLoop.
EXIT_WITHOUT_CLEANUP = "import os, sys\nsys.stdout.flush()\nos._exit(0)\n"


@pytest.mark.runs
@pytest.mark.torch
def test_ddp_guide_scripts_differ_only_in_numbered_lines_and_give_same_loss(tmp_path: Path) -> None:
    before, after = blocks("docs/how-to/ddp.md", "python")
    prepare_guide("docs/how-to/ddp.md", 1, tmp_path)
    ran = torchrun(before + EXIT_WITHOUT_CLEANUP, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert expected_loss("docs/how-to/ddp.md") in ran.stdout.splitlines()
    assert (tmp_path / "model.pt").is_file()
    new = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line.partition("# ")[2][:2] for line in new] == ["1.", "2.", "3.", "4."]


@pytest.mark.runs
@pytest.mark.torch
def test_one_process_first_generation_and_backend_give_same_loss(tmp_path: Path) -> None:
    page = "docs/how-to/smdistributed.md"
    backend, alone, first_generation = blocks(page, "python")
    prepare_guide(page, 0, tmp_path)
    variables = {"SM_CHANNEL_TRAIN": str(tmp_path / "data" / "train"), "SM_MODEL_DIR": str(tmp_path)}
    command = [sys.executable, "-c", alone]
    ran = subprocess.run(command, env=clean_environment(**variables), capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == [expected_loss(page)], ran.stderr
    for script in (first_generation, backend):
        (tmp_path / "model.pt").unlink()
        ran = torchrun(script, tmp_path, **variables, OMP_NUM_THREADS="1")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines() == [expected_loss(page)]
        assert (tmp_path / "model.pt").is_file()
    numbered = [line for line in first_generation.splitlines() if "  # " in line]
    assert [line.partition("  # ")[2][:2] for line in numbered] == [f"{number}." for number in range(1, 9)]


@pytest.mark.parametrize("page", ["how-to/ddp", "how-to/smdistributed", "tutorial"])
def test_guide_scripts_pass_rules_for_gpus_and_data_shares(page: str, tmp_path: Path) -> None:
    for script in blocks(f"docs/{page}.md", "python"):
        if "import smdistributed" in script:
            diagnostics = check_job(write_job(tmp_path, JOB, script), environ={}).diagnostics
            assert [one for one in diagnostics if one.code.startswith("SMDP44")] == []


@pytest.mark.parametrize("script", [1, 2], ids=["loop", "model.fit"])
def test_tensorflow_guide_job_is_valid_and_planned_by_its_commands(script: int, tmp_path: Path) -> None:
    page = "docs/how-to/tensorflow.md"
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(blocks(page, "python")[script])
    (tmp_path / "job.yaml").write_text(blocks(page, "yaml")[0])
    assert check_job(tmp_path / "job.yaml", environ={}).diagnostics == ()
    (commands,) = blocks(page, "sh")
    validate, plan, launch = commands.splitlines()
    assert launch == "smdp-launch launch --local --hosts 2 --workers-per-host 2"  # needs TensorFlow: tests/endtoend
    ran = shell(f"{validate}\n{plan}", tmp_path)
    assert ran.returncode == 0, ran.stderr
    settings = ["engine=smdistributed", "image=null", 'framework.version="2.11.0"']
    found = check_job(tmp_path / "job.yaml", settings=settings, environ={}).diagnostics
    assert {one.code for one in found} == (set() if script == 1 else {"SMDP456"})


def test_readme_error_example_matches_validate_output(tmp_path: Path) -> None:
    (tmp_path / "templates").symlink_to(ROOT / "templates")
    text = blocks("README.md", "yaml")[0].replace("ml.p4d.24xlarge", "ml.p3.24xlarge")
    (tmp_path / "job.yaml").write_text(text)
    message = shell("smdp-launch validate", tmp_path).stderr
    assert message.startswith(blocks("README.md", "text")[0])


@pytest.mark.soak
@pytest.mark.torch
def test_tutorial_commands_train_model_and_pass_rehearsal(tmp_path: Path) -> None:
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


@pytest.mark.torch
def test_parts_of_the_gpu_guide_are_those_of_the_template_and_train() -> None:
    parts = "".join(blocks("docs/how-to/gpus/train.md", "python"))
    template = (ROOT / "templates" / "scripts" / "mnist_ddp.py").read_text()
    names = ["this_device", "to_device", "forward_context", "make_scaler"]
    assert re.findall(r"^def (\w+)", parts, re.MULTILINE) == names
    assert [name for name in names if f"def {name}(" not in template] == []
    step = blocks("docs/how-to/gpus/train.md", "text")[1]
    setting = """
from torch.nn import functional
device = this_device()
inputs, targets = to_device(torch.randn(16, 8), device), to_device(torch.arange(16) % 4, device)
for precision in ("fp32", "bf16", "fp16"):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).to(device)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), make_scaler(precision, device)
    losses = []
    for _ in range(20):
"""
    loop = "".join(f"        {line}\n" for line in step.splitlines()) + "        losses.append(loss.item())\n"
    script = parts + setting + loop + "    print(precision, losses[-1] < losses[0])\n"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["fp32 True", "bf16 True", "fp16 True"], ran.stderr
