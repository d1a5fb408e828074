"""The command that installs packages, for the tool that made the environment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smdp_launch.doctor.installer import Environment, install_engine, install_local
from smdp_launch.doctor.packages import LOCAL_CLOUD
from tests.conftest import ROOT

UV = "home = /usr/bin\nimplementation = CPython\nuv = 0.5.1\nversion_info = 3.12.1\n"
VENV = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.12.1\n"
EXTRA = "smdp-launch[local]"


def environment(folder: Path, *, config: str | None = None, has_pip: bool = True, **more: object) -> Environment:
    """An environment with a Python, and with a pip where it has one."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("python", *(["pip"] if has_pip else [])):
        (programs / name).touch(mode=0o755)
    if config is not None:
        (folder / "pyvenv.cfg").write_text(config)
    return Environment(programs / "python", folder, config is not None, has_pip, **more)  # type: ignore[arg-type]


def test_active_environment_has_the_short_command(tmp_path: Path) -> None:
    made = environment(tmp_path / "v", config=VENV, variables={"PATH": f"{tmp_path}/v/bin:/usr/bin"})
    assert made.install(EXTRA, "torch") == "pip install 'smdp-launch[local]' torch"


def test_environment_that_is_not_on_the_path_is_named(tmp_path: Path) -> None:
    made = environment(tmp_path / "my env", config=VENV, variables={"PATH": "/usr/bin"})
    assert made.install(EXTRA) == f"'{tmp_path}/my env/bin/python' -m pip install 'smdp-launch[local]'"


def test_environment_without_pip_gets_pip_first(tmp_path: Path) -> None:
    made = environment(tmp_path / "v", config=VENV, has_pip=False, variables={"PATH": f"{tmp_path}/v/bin"})
    assert made.install("torch") == "python -m ensurepip && python -m pip install torch"


def test_uv_environment_uses_uv(tmp_path: Path) -> None:
    made = environment(tmp_path / "v", config=UV, has_pip=False, variables={"PATH": ""})
    assert made.install(EXTRA) == f"uv pip install --python {tmp_path}/v/bin/python 'smdp-launch[local]'"


def test_active_uv_environment_uses_uv_without_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    made = environment(folder, config=UV, has_pip=False, variables={"VIRTUAL_ENV": str(folder)})
    assert made.install(EXTRA) == "uv pip install 'smdp-launch[local]'"


def test_uv_environment_with_pip_uses_pip(tmp_path: Path) -> None:
    made = environment(tmp_path / "v", config=UV, variables={"PATH": f"{tmp_path}/v/bin"})
    assert made.install("torch") == "pip install torch"


def test_uv_tool_uses_uv(tmp_path: Path) -> None:
    made = environment(tmp_path / "tool", config=VENV, has_pip=False, variables={"PATH": ""})
    (tmp_path / "tool" / "uv-receipt.toml").touch()
    assert made.install("torch") == f"uv pip install --python {tmp_path}/tool/bin/python torch"


def test_pipx_environment_uses_pipx(tmp_path: Path) -> None:
    made = environment(tmp_path / "smdp-launch", config=VENV, variables={"PATH": ""})
    (tmp_path / "smdp-launch" / "pipx_metadata.json").touch()
    assert made.install(EXTRA) == "pipx runpip smdp-launch install 'smdp-launch[local]'"


def test_conda_environment_uses_its_pip(tmp_path: Path) -> None:
    made = environment(tmp_path / "envs", is_managed=True, variables={"PATH": f"{tmp_path}/envs/bin"})
    (tmp_path / "envs" / "conda-meta").mkdir()
    assert made.install("torch") == "pip install torch"


def test_conda_environment_without_pip_gets_pip_from_conda(tmp_path: Path) -> None:
    made = environment(tmp_path / "envs", has_pip=False, variables={"PATH": f"{tmp_path}/envs/bin"})
    (tmp_path / "envs" / "conda-meta").mkdir()
    expected = f"conda install --yes --prefix {tmp_path}/envs pip && python -m pip install torch"
    assert made.install("torch") == expected


@pytest.mark.parametrize(
    ("in_user_site", "is_managed", "options"),
    [
        (True, False, " --user"),
        (False, True, " --break-system-packages"),
        (True, True, " --user --break-system-packages"),
    ],
)
def test_system_python_gets_the_options_of_the_first_installation(
    tmp_path: Path, in_user_site: bool, is_managed: bool, options: str
) -> None:
    variables = {"PATH": f"{tmp_path}/usr/bin"}
    made = environment(tmp_path / "usr", in_user_site=in_user_site, is_managed=is_managed, variables=variables)
    assert made.install("torch") == f"pip install{options} torch"


def test_command_names_the_folder_of_the_wheel_that_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, record = tmp_path / "my wheels", tmp_path / "smdp_launch-0.1.0.dist-info"
    folder.mkdir()
    record.mkdir()
    (record / "METADATA").write_text("Name: smdp-launch\nVersion: 0.1.0\n")
    url = (folder / "smdp_launch-0.1.0-py3-none-any.whl").as_uri()
    (record / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {}}))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "--find-links" not in install_local("torch")
    (folder / "smdp_engine-0.1.0-py3-none-any.whl").touch()
    assert install_local("torch").endswith(f"--find-links '{folder}' 'smdp-launch[local]==0.1.0' torch")
    assert install_engine().endswith(f"--find-links '{folder}' smdp-engine==0.1.0")


def test_packages_of_the_check_are_those_of_the_extra() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extras = {
        name: re.findall(r'"([\w-]+)', listed) for name, listed in re.findall(r"^(local\S*) = \[(.*)\]$", text, re.M)
    }
    assert set(extras["local-cloud"]) | {"smdp-entrypoint"} == {one.distribution for one in LOCAL_CLOUD}
    # Local runs do not need numpy; without it torch warns.
    assert set(extras["local"]) == {"smdp-launch", "smdp-engine", "smdp-entrypoint", "numpy"}


def test_packages_of_this_repository_are_required_in_the_launcher_s_version() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"$', text, re.M)
    assert version is not None
    assert set(re.findall(r'"smdp-(?:engine|entrypoint)==([^"]*)"', text)) == {version[1]}
