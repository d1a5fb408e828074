"""The command that installs packages, for the tool that made the environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import smdp_launch
from smdp_launch.doctor.environment import Environment
from smdp_launch.doctor.installer import Options, command
from smdp_launch.doctor.packages import LOCAL_CLOUD
from tests.conftest import ROOT

UV = "home = /usr/bin\nimplementation = CPython\nuv = 0.5.1\nversion_info = 3.12.1\n"
VENV = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.12.1\n"
EXTRA = "smdp-launch[local]"
THIS = f"{EXTRA}=={smdp_launch.__version__}"


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
    assert command(made, [EXTRA, "torch"]) == "pip install 'smdp-launch[local]' torch"


def test_environment_that_is_not_on_the_path_is_named(tmp_path: Path) -> None:
    made = environment(tmp_path / "my env", config=VENV, variables={"PATH": "/usr/bin"})
    assert command(made, [EXTRA]) == f"'{tmp_path}/my env/bin/python' -m pip install 'smdp-launch[local]'"


def test_environment_without_pip_gets_pip_first(tmp_path: Path) -> None:
    made = environment(tmp_path / "v", config=VENV, has_pip=False, variables={"PATH": f"{tmp_path}/v/bin"})
    assert command(made, ["torch"]) == "python -m ensurepip && python -m pip install torch"


def test_uv_environment_uses_uv(tmp_path: Path) -> None:
    made = environment(tmp_path / "v", config=UV, has_pip=False, variables={"PATH": ""})
    assert command(made, [EXTRA]) == f"uv pip install --python {tmp_path}/v/bin/python 'smdp-launch[local]'"


def test_active_uv_environment_uses_uv_without_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    made = environment(folder, config=UV, has_pip=False, variables={"VIRTUAL_ENV": str(folder)})
    assert command(made, [EXTRA]) == "uv pip install 'smdp-launch[local]'"


@pytest.mark.parametrize("has_pip", [True, False])
def test_uv_s_python_is_given_to_uv_where_a_shell_does_not_find_it(tmp_path: Path, has_pip: bool) -> None:
    made = environment(tmp_path / "v", config=UV, has_pip=has_pip, variables={"PATH": "", "UV": "/opt/uv"})
    python = f"{tmp_path}/v/bin/python"
    expected = f"{python} -m pip install torch" if has_pip else f"/opt/uv pip install --python {python} torch"
    assert command(made, ["torch"]) == expected


def test_uv_environment_with_pip_uses_pip(tmp_path: Path) -> None:
    made = environment(tmp_path / "v", config=UV, variables={"PATH": f"{tmp_path}/v/bin"})
    assert command(made, ["torch"]) == "pip install torch"


RECEIPT = """\
[tool]
requirements = [{ name = "smdp-launch", extras = ["local"] }, { name = "numpy", specifier = "<3" }, { name = "torch" }]
entrypoints = [
    { name = "smdp-launch", install-path = "/bin/smdp-launch", from = "smdp-launch" },
]
"""


def test_tool_of_uv_is_installed_again_with_all_its_packages(tmp_path: Path) -> None:
    made = environment(tmp_path / "tool", config=UV, has_pip=False)
    (tmp_path / "tool" / "uv-receipt.toml").write_text(RECEIPT)
    expected = f"uv tool install --with 'numpy<3' --with torch '{THIS}'"
    assert command(made, [THIS]) == expected
    expected = f"uv tool install --find-links /w --with 'numpy<3' --with torch==2.13.0 '{THIS}'"
    assert command(made, ["torch==2.13.0"], Options(folder=Path("/w"))) == expected
    expected = f"uv tool install --reinstall-package torch --with 'numpy<3' --with torch '{THIS}'"
    assert command(made, ["torch"], Options(is_again=True)) == expected


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (UV, f"uv tool run --python 3.12 --find-links /w --from '{THIS}' --with torch"),
        (f"{UV}extends-environment = /usr\n", f"uv run --python 3.12 --find-links /w --with '{THIS}' --with torch"),
    ],
    ids=["uvx", "uv run --with"],
)
def test_environment_of_one_command_is_made_again_by_the_command_that_uses_it(
    tmp_path: Path, kind: str, first: str
) -> None:
    more = {"arguments": ("launch", "--local", "--set", "name=a b"), "version": "3.12"}
    made = environment(tmp_path / "cache" / "archive-v0" / "x", config=kind, has_pip=False, **more)
    (tmp_path / "cache" / "CACHEDIR.TAG").touch()
    expected = f"{first} smdp-launch launch --local --set 'name=a b'"
    assert command(made, [THIS, "torch"], Options(folder=Path("/w"))) == expected


@pytest.mark.parametrize("cache", [".local/share/pipx/.cache", ".cache/pipx"], ids=["home", "cache"])
def test_environment_of_pipx_run_is_made_again_by_pipx(tmp_path: Path, cache: str) -> None:
    made = environment(tmp_path / cache / "0123", config=VENV, has_pip=False, arguments=("launch", "--local"))
    (tmp_path / cache / "0123" / "pipx_metadata.json").touch()
    expected = f"pipx run '--pip-args=--find-links /w' --spec '{THIS}' --with torch smdp-launch launch --local"
    assert command(made, [THIS, "torch"], Options(folder=Path("/w"))) == expected


def test_project_of_uv_gets_its_packages_with_uv_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = environment(tmp_path / "project" / ".venv", config=UV, has_pip=False)
    (tmp_path / "project" / "uv.lock").touch()
    assert command(made, [THIS]) == f"uv add --project {tmp_path}/project '{THIS}'"
    monkeypatch.chdir(tmp_path / "project")
    assert command(made, [THIS, "torch"]) == f"uv add '{THIS}' torch"


def test_pipx_environment_uses_pipx(tmp_path: Path) -> None:
    made = environment(tmp_path / "venvs" / "smdp-launch", config=VENV, variables={"PATH": ""})
    (tmp_path / "venvs" / "smdp-launch" / "pipx_metadata.json").touch()
    assert command(made, [EXTRA]) == "pipx runpip smdp-launch install 'smdp-launch[local]'"


def test_conda_environment_uses_its_pip(tmp_path: Path) -> None:
    made = environment(tmp_path / "envs", is_managed=True, variables={"PATH": f"{tmp_path}/envs/bin"})
    (tmp_path / "envs" / "conda-meta").mkdir()
    assert command(made, ["torch"]) == "pip install torch"


def test_conda_environment_without_pip_gets_pip_from_conda(tmp_path: Path) -> None:
    made = environment(tmp_path / "envs", has_pip=False, variables={"PATH": f"{tmp_path}/envs/bin"})
    (tmp_path / "envs" / "conda-meta").mkdir()
    expected = f"conda install --yes --prefix {tmp_path}/envs pip && python -m pip install torch"
    assert command(made, ["torch"]) == expected


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
    assert command(made, ["torch"]) == f"pip install{options} torch"


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
