"""Two builds of the engine in one job."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import c_interface
import pytest
from ports import free_port

NATIVE = Path(__file__).parents[2]

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
    """The installed library, linked again from the same parts with the name of another build."""
    built = NATIVE / "build" / "Release"
    commands = json.loads((built / "compile_commands.json").read_text())
    compiles = next(shlex.split(one["command"]) for one in commands if one["file"].endswith("/engine/capi.cc"))
    target = tmp_path_factory.mktemp("second")
    object_file, library = str(target / "capi.o"), target / "libsmdp_engine.so"
    renamed = [
        '-DSMDP_ENGINE_BUILD="0.1.0+second"' if one.startswith("-DSMDP_ENGINE_BUILD=") else one for one in compiles
    ]
    renamed[renamed.index("-o") + 1] = object_file
    subprocess.run(renamed, check=True, cwd=built, timeout=120)
    links = [compiles[0], "-shared", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-pthread"]
    subprocess.run(
        [*links, "-o", str(library), object_file, str(built / "libsmdp_core.a")], check=True, cwd=built, timeout=120
    )
    return library


@pytest.mark.runs
def test_two_builds_refuse_each_other_naming_both_on_every_rank(second: Path) -> None:
    first = c_interface.installed()
    builds = {c_interface.Library(path).build for path in (first, second)}
    assert len(builds) == 2
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(path), str(rank), str(port)],
            cwd=NATIVE / "tests" / "support",
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, path in enumerate((first, second, first))
    ]
    for process in processes:
        out = process.communicate(timeout=60)[0]
        assert process.returncode == 0 and out.startswith("raised"), out
        assert "build" in out and all(build in out for build in builds), out
