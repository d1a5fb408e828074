"""The folder of wheels that the command which installs missing packages names."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import smdp_launch
from smdp_launch.doctor.environment import Environment
from smdp_launch.doctor.installer import install_engine, install_local
from smdp_launch.doctor.packages import missing_text
from smdp_launch.doctor.wheels import Links, links

VERSION = smdp_launch.__version__
OURS = ("smdp_launch", "smdp_entrypoint", "smdp_engine")
UNKNOWN = Links(None, False)


def wheels(folder: Path, version: str = VERSION) -> Path:
    folder.mkdir(parents=True)
    for name in OURS:
        (folder / f"{name}-{version}-py3-none-any.whl").touch()
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder; the current folder is another one."""
    home, here = tmp_path / "home", tmp_path / "of a user" / "of a project" / "here"
    home.mkdir()
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def venv(tmp_path: Path) -> Environment:
    (tmp_path / "venv").mkdir()
    config = {"PIP_CONFIG_FILE": os.devnull}
    return Environment(tmp_path / "venv" / "bin" / "python", tmp_path / "venv", True, True, variables=config)


def found(environment: Environment) -> Links:
    return links(environment, VERSION, None)


def test_unknown_folder_is_reported_as_such(home: Path, venv: Environment) -> None:
    assert found(venv) == UNKNOWN


@pytest.mark.parametrize("place", [".", "wheels", "dist/release", "../wheels", "~", "~/Downloads", "~/a/wheels"])
def test_folder_near_the_current_one_or_in_the_home_folder_is_found(home: Path, venv: Environment, place: str) -> None:
    folder = Path(place).expanduser().resolve()
    wheels(folder / "new")
    for one in (folder / "new").iterdir():
        one.rename(folder / one.name)
    assert found(venv) == Links(folder, True)


@pytest.mark.parametrize(
    ("version", "mode", "name"),
    [("0.0.1", 0o755, "wheels"), (VERSION, 0o777, "wheels"), (VERSION, 0o755, ".hidden")],
    ids=["another version", "written by all users", "hidden"],
)
def test_other_folder_is_not_named(home: Path, venv: Environment, version: str, mode: int, name: str) -> None:
    wheels(home / name, version).chmod(mode)
    assert found(venv) == UNKNOWN


def test_folder_without_the_engine_is_not_named(home: Path, venv: Environment) -> None:
    (next(wheels(home / "wheels").glob("smdp_engine-*"))).unlink()
    assert found(venv) == UNKNOWN


def test_folder_in_which_pip_looks_already_needs_no_option(home: Path, venv: Environment, tmp_path: Path) -> None:
    folder = wheels(tmp_path / "elsewhere")
    assert found(venv) == UNKNOWN
    variables = {**venv.variables, "PIP_FIND_LINKS": f"https://example.org/wheels {folder.as_uri()}"}
    assert found(replace(venv, variables=variables)) == Links(None, True)
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(f"[global]\nfind-links =\n    {folder}\n")
    assert found(replace(venv, variables={})) == Links(None, True)
    (home / ".config" / "pip" / "pip.conf").write_text("[global\n")
    assert found(replace(venv, variables={})) == UNKNOWN


def test_folder_in_which_uv_looks_already_needs_no_option(home: Path, venv: Environment, tmp_path: Path) -> None:
    folder = wheels(tmp_path / "elsewhere")
    of_uv = replace(venv, has_pip=False, variables={"UV_FIND_LINKS": f"/nowhere,{folder}"})
    (venv.prefix / "pyvenv.cfg").write_text("uv = 0.13.9\n")
    assert found(of_uv) == Links(None, True)
    assert found(replace(of_uv, variables={"PIP_FIND_LINKS": str(folder)})) == UNKNOWN


def test_folder_that_pipx_recorded_is_named(home: Path, venv: Environment, tmp_path: Path) -> None:
    folder = wheels(tmp_path / "else where")
    record = venv.prefix / "pipx_metadata.json"
    for arguments in (["--find-links", str(folder)], [f"--find-links={folder}"], ["--pre", "-f", str(folder)]):
        record.write_text(json.dumps({"main_package": {"pip_args": arguments}, "injected_packages": {}}))
        assert found(venv) == Links(folder, True)
    for text in ("", "[]", "{", '{"main_package": []}'):
        record.write_text(text)
        assert found(venv) == UNKNOWN


def test_folder_that_uv_recorded_for_its_tool_is_named(home: Path, venv: Environment, tmp_path: Path) -> None:
    folder = wheels(tmp_path / "else where")
    receipt = f"""[tool]\nrequirements = [\n    {{ name = "smdp-launch" }},\n]\n
[tool.options]\nfind-links = ["file:///nowhere", "{folder.as_uri()}"]\n"""
    (venv.prefix / "uv-receipt.toml").write_text(receipt)
    assert found(venv) == Links(folder, True)


def installed(folder: Path, url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what pip records of an installation."""
    record = folder / f"smdp_launch-{VERSION}.dist-info"
    record.mkdir(exist_ok=True)
    (record / "METADATA").write_text(f"Name: smdp-launch\nVersion: {VERSION}\n")
    if url is not None:
        (record / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {}}))
    monkeypatch.syspath_prepend(str(folder))


def test_command_names_the_folder_of_the_wheel_that_was_installed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = wheels(tmp_path / "my wheels")
    installed(tmp_path, (folder / f"smdp_launch-{VERSION}-py3-none-any.whl").as_uri(), monkeypatch)
    this = f"smdp-launch[local]=={VERSION}"
    assert install_local("torch").endswith(f" install --find-links '{folder}' '{this}' torch")
    assert install_engine().endswith(f" install --find-links '{folder}' smdp-engine=={VERSION}")
    again = f" install --force-reinstall --no-deps --find-links '{folder}' smdp-engine=={VERSION}"
    assert install_engine(is_again=True).endswith(again)
    assert "FOLDER" not in missing_text(["smdp-engine"])


def test_sentence_says_what_to_add_where_the_folder_is_unknown(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, None, monkeypatch)
    hint = " (add --find-links FOLDER if smdp-launch came from a folder of wheels)"
    assert f"; to install it{hint}, run: " in missing_text(["smdp-engine"])
    assert f"; to install them{hint}, run: " in missing_text(["cbor2", "smdp-entrypoint"])
    assert "FOLDER" not in missing_text(["cbor2", "moto"])
    wheels(home / "wheels")
    assert "FOLDER" not in missing_text(["smdp-engine"])
