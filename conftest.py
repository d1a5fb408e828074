"""For all tests: a shell that starts them in the background has them ignore Ctrl-C, and their children inherit that.

No example of a property test has a deadline: its time says how busy the machine is. `make test` tries a fifth of the
examples, `make test-soak` (``--hypothesis-profile whole``) all of them.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

#: Run first, so that no process is left with one of them while the others have nothing more to do.
LONGEST = (
    "tests/launcher/jobs/test_rehearse.py",
    "tests/endtoend/test_launch_local.py",
    "tests/endtoend/test_launch_interrupts.py",
    "tests/test_docs.py",
    "native/tests/late_device/test_device_tensors.py",
    "native/tests/torch/test_first_generation_training.py",
    "native/tests/torch/test_first_generation_errors.py",
    "tests/programs/test_programs.py",
    "tests/soak/test_resume_kills.py",
    "tests/localcloud/runs/test_rehearsed_faults.py",
    "tests/endtoend/test_mnist.py",
    "tests/launcher/jobs/test_preflight.py",
    "tests/launcher/jobfile/test_fix.py",
    "tests/launcher/jobs/test_verbs.py",
    "tests/launcher/cli/test_next_command.py",
    "tests/launcher/jobs/transfer/test_download.py",
    "native/tests/torch/test_futures.py",
    "native/tests/torch/test_torch_backend.py",
    "native/tests/torch/test_torch_on_top.py",
    "native/tests/torch/test_checkpoint.py",
    "native/tests/torch/test_endurance.py",
    "native/tests/torch/test_conformance.py",
    "native/tests/torch/test_exit.py",
    "native/tests/launchers/test_page.py",
    "tests/endtoend/test_interruptions.py",
    "tests/endtoend/test_cuda_on_cpu.py",
    "tests/endtoend/test_newcomer.py",
    "tests/launcher/jobs/test_faulty_service.py",
    "tests/launcher/jobs/test_checkpoint_watch.py",
    "tests/launcher/jobfile/test_extreme_files.py",
    "tests/launcher/cli/test_local.py",
    "tests/launcher/jobs/test_resume.py",
    "tests/localcloud/runs/test_jobs.py",
    "tests/localcloud/server/test_local_cloud_block.py",
    "tests/launcher/rules/test_explain.py",
    "containers/entrypoint/tests/test_python_versions.py",
)

signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("whole", deadline=None, max_examples=100)
settings.register_profile("slice", deadline=None, max_examples=20)
settings.load_profile("slice")


#: Cases of the tier `runs` by their node id.
LONG_CASES = frozenset(
    line
    for line in (Path(__file__).parent / "tests" / "long_cases.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in LONG_CASES:
            item.add_marker(pytest.mark.runs)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
