"""Two builds of the engine, both really installed, in one job."""

import subprocess
import sys
from pathlib import Path

import c_interface
import pytest
from ports import free_port

NATIVE = Path(__file__).parent.parent

RANK = """
import sys
import c_interface
path, rank, port = sys.argv[1:]
library = c_interface.Library(path)
options = c_interface.options_of("host-" + rank, int(port), {"SMDP_REFUSAL_GRACE_S": "1"})
try:
    c_interface.Engine(library, int(rank), 3, options)
    print("no error")
except c_interface.EngineError as error:
    print("raised", error)
"""


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation beside the environment's, whose build differs by its label."""
    target = tmp_path_factory.mktemp("second")
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-build-isolation", "--target", str(target), str(NATIVE)),
        *("-C", "build-dir=build/second-build", "-C", "cmake.define.SMDP_TORCH=OFF"),
        *("-C", "cmake.define.SMDP_BUILD_LABEL=second"),
    ]
    subprocess.run(command, check=True, timeout=280)
    return target / "smdp_engine" / "libsmdp_engine.so"


def test_two_installed_builds_refuse_each_other_naming_both_on_every_rank(second: Path) -> None:
    first = c_interface.installed()
    builds = {c_interface.Library(path).build for path in (first, second)}
    assert len(builds) == 2
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(path), str(rank), str(port)],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, path in enumerate((first, second, first))
    ]
    for process in processes:
        out = process.communicate(timeout=60)[0]
        assert process.returncode == 0 and out.startswith("raised"), out
        assert "build" in out and all(build in out for build in builds), out
