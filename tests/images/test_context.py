"""The inputs of an image, and its name, which depends on them."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog.images import parse_image, tag_facts
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.image.build import build
from smdp_launch.image.context import SOURCES, Context, source_root, stage
from smdp_launch.image.recipe import Recipe, arguments, recipe
from smdp_launch.image.tools import Login, Tool, find_tool, logged_in
from tests.conftest import ROOT

DOCKERFILES = sorted(ROOT.glob("containers/*/Dockerfile*"))


def staged(folder: Path, **args: str) -> Context:
    folder.mkdir()
    return stage(recipe("pytorch", "2.0.1", cuda=True, args=args), folder, None)


def test_default_recipe_matches_documentation() -> None:
    """CUDA 11.8, PyTorch 2.0.1 and Python 3.10 are the defaults of the Dockerfile."""
    text = (ROOT / "containers" / "pytorch" / "Dockerfile").read_text()
    defaults = arguments(text)
    chosen = recipe("pytorch", "2.0.1", cuda=True)
    assert {name: value for name, value in chosen.args.items() if defaults[name] != value} == {}
    assert (chosen.cuda, chosen.python, defaults["TORCH"]) == ("11.8", "3.10", "2.0.1")
    assert defaults["BASE"].startswith("docker.io/nvidia/cuda:11.8.0-")
    assert defaults["TORCH_INDEX"].endswith("/cu118")


def test_recipe_of_newest_pytorch_has_cuda_13() -> None:
    chosen = recipe("pytorch", "2.13.0", cuda=True)
    assert (chosen.cuda, chosen.python, chosen.tag("0" * 64)) == ("13.0", "3.10", f"2.13.0-cu130-py310-{'0' * 12}")
    assert chosen.args["BASE"].startswith("docker.io/nvidia/cuda:13.0.")
    assert chosen.args["TORCH_INDEX"].endswith("/cu130")


def test_default_tensorflow_recipe_matches_documentation() -> None:
    defaults = arguments((ROOT / "containers" / "tensorflow" / "Dockerfile").read_text())
    chosen = recipe("tensorflow", None, cuda=True)
    assert {name: value for name, value in chosen.args.items() if defaults[name] != value} == {}
    assert (chosen.cuda, chosen.python, chosen.version) == ("11.8", "3.10", "2.14.1")
    assert defaults["BASE"].startswith("docker.io/nvidia/cuda:11.8.0-cudnn8-runtime-")
    older = recipe("tensorflow", "2.11.1", cuda=True)
    assert older.args == {"TENSORFLOW": "2.11.1", "CUDA": "11.8", "PYTHON": "3.10"}


@pytest.mark.parametrize(
    ("framework", "version", "cuda"),
    [
        *[("pytorch", version, cuda) for version in ("2.0.1", "2.8.0", "2.13.0") for cuda in (True, False)],
        *[("tensorflow", version, cuda) for version in ("2.11.1", "2.14.1") for cuda in (True, False)],
    ],
)
def test_every_base_names_its_registry(framework: str, version: str, cuda: bool) -> None:
    """podman and buildah find no image for a name without a registry, unless they are configured to."""
    known = recipe(framework, version, cuda=cuda)
    base = known.args.get("BASE") or arguments((ROOT / "containers" / framework / known.dockerfile).read_text())["BASE"]
    found = parse_image(base)
    assert found is not None
    assert found.registry == "docker.io"
    assert found.tag is not None


def test_catalogue_reads_tag() -> None:
    facts = tag_facts(recipe("pytorch", "2.0.1", cuda=True).tag("0" * 64))
    assert (facts.version, facts.cuda, facts.python) == ("2.0.1", "11.8", "3.10")
    facts = tag_facts(recipe("pytorch", "2.13.0", cuda=False, transformers="4.28.1").tag("0" * 64))
    assert (facts.version, facts.processor, facts.transformers) == ("2.13.0", "cpu", "4.28.1")
    facts = tag_facts(recipe("tensorflow", None, cuda=True).tag("0" * 64))
    assert (facts.version, facts.cuda, facts.python) == ("2.14.1", "11.8", "3.10")


def test_engine_version_matches_its_project() -> None:
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "native" / "pyproject.toml").read_text(), re.MULTILINE)
    for file in DOCKERFILES:
        assert arguments(file.read_text())["ENGINE"] == version


def test_same_sources_have_same_hash(tmp_path: Path) -> None:
    assert staged(tmp_path / "a").content_hash == staged(tmp_path / "b").content_hash


def test_same_sources_have_same_times(tmp_path: Path) -> None:
    """buildah compares times of files too."""
    times = [{path.stat().st_mtime for path in staged(tmp_path / one).folder.rglob("*")} for one in "ab"]
    assert times[0] == times[1]
    assert len(times[0]) == 1


def test_changed_argument_or_source_changes_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = staged(tmp_path / "a")
    assert staged(tmp_path / "b", EFA="off").content_hash != plain.content_hash
    root = tmp_path / "sources"
    for name in (*SOURCES, "containers/pytorch"):
        source = plain.folder / name if (plain.folder / name).exists() else ROOT / name
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(source)
    monkeypatch.setattr("smdp_launch.image.context.source_root", lambda: root)
    assert staged(tmp_path / "c").content_hash == plain.content_hash
    changed = plain.folder / "native" / "engine" / "engine.cc"
    changed.write_text(changed.read_text() + "\n")
    assert staged(tmp_path / "d").content_hash != plain.content_hash


def test_every_folder_copied_by_dockerfiles_is_staged(tmp_path: Path) -> None:
    folder = staged(tmp_path / "a").folder
    for file in DOCKERFILES:
        copied = re.findall(r"^COPY (?!--from)(\S+) ", file.read_text(), re.MULTILINE)
        assert len(copied) == 3
        assert [one for one in copied if not (folder / one).is_dir()] == []


def test_every_source_named_by_cmake_is_staged(tmp_path: Path) -> None:
    """Including targets that an image does not need: CMake looks for the sources of every target."""
    native = staged(tmp_path / "a").folder / "native"
    listed = [native / "CMakeLists.txt", *native.glob("adapters/*/CMakeLists.txt")]
    for file in listed:
        named = re.findall(r"(?<![\w/])[\w./-]+\.(?:cc|h|pth|py)\b", file.read_text())
        assert named
        assert [one for one in named if not (file.parent / one.lstrip("/")).is_file()] == []
    assert "model/main.cc" in listed[0].read_text()


def test_every_folder_added_by_cmake_is_staged_or_optional(tmp_path: Path) -> None:
    native = staged(tmp_path / "a").folder / "native"
    text = (native / "CMakeLists.txt").read_text()
    added = set(re.findall(r"^ *add_subdirectory\((\S+)\)", text, re.MULTILINE))
    missing = {one for one in added if not (native / one).is_dir()}
    assert missing == {"tests", "fuzz", "benchmarks"}
    for one in missing:
        assert re.search(rf"^if\(SMDP_[^)]*\)\n(?:  .*\n)*  add_subdirectory\({one}\)", text, re.MULTILINE)


def test_build_outputs_are_not_staged(tmp_path: Path) -> None:
    folder = staged(tmp_path / "a").folder
    odd = [path for path in folder.rglob("*") if path.suffix in (".so", ".pyc", ".o") or path.name == "__pycache__"]
    assert odd == []


def test_sources_are_those_of_checkout() -> None:
    assert source_root() == ROOT


def test_installed_launcher_contains_image_sources() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    for name in (*SOURCES, "containers/pytorch", "containers/tensorflow"):
        assert f'"{name}" = "smdp_launch/_image/{name}"' in settings


def test_unknown_version_is_refused_with_known_versions() -> None:
    with pytest.raises(Refused, match=r"PyTorch 1\.13\.1; the recipes are for 2\.0\.1 to 2\."):
        recipe("pytorch", "1.13.1", cuda=True)
    with pytest.raises(Refused, match=r"TensorFlow 2\.12\.0; the recipes are for 2\.11\.1, 2\.14\.1"):
        recipe("tensorflow", "2.12.0", cuda=True)


@pytest.mark.parametrize("version", ["", "2", "2.4.1; ls", "2.4.1+cu118", "latest"])
def test_text_that_is_not_a_full_version_is_refused(version: str) -> None:
    with pytest.raises(Refused, match="there is no recipe for PyTorch"):
        recipe("pytorch", version or " ", cuda=True)


@pytest.mark.parametrize(
    ("version", "full", "cuda", "index"),
    [("2.4", "2.4.1", "11.8", None), ("2.4.0", "2.4.0", "11.8", None), ("2.9.1", "2.9.1", "12.6", "cu126")],
)
def test_each_minor_version_has_the_oldest_cuda(version: str, full: str, cuda: str, index: str | None) -> None:
    chosen = recipe("pytorch", version, cuda=True)
    assert (chosen.version, chosen.cuda, chosen.args["TORCH"]) == (full, cuda, full)
    assert chosen.args.get("TORCH_INDEX") == (f"https://download.pytorch.org/whl/{index}" if index else None)


def test_image_on_a_container_of_aws_has_its_versions() -> None:
    chosen = recipe("pytorch", "2.5.1", cuda=True, dlc=True)
    assert (chosen.version, chosen.cuda, chosen.python) == ("2.5.1", "12.4", "3.11")
    assert chosen.args["BASE"].endswith(".amazonaws.com/pytorch-training:2.5.1-gpu-py311")
    with pytest.raises(Refused, match=r"AWS has no container of PyTorch 2\.13\.0.* 2\.0\.0, .*--arg BASE=IMAGE "):
        recipe("pytorch", "2.13.0", cuda=True, dlc=True)
    args = {"BASE": "mine:1", "CUDA": "13.0", "PYTHON": "3.12"}
    own = recipe("pytorch", "2.15.0", cuda=True, dlc=True, args=args)
    assert (own.args["BASE"], own.cuda, own.python) == ("mine:1", "13.0", "3.12")
    copy = recipe("pytorch", "2.5.1", cuda=True, dlc=True, args={"BASE": "mirror:1"})
    assert (copy.args["BASE"], copy.cuda, copy.python) == ("mirror:1", "12.4", "3.11")


@pytest.mark.parametrize("version", ["4.28 1", "latest/x", "", "4.28.1; ls"])
def test_version_that_is_invalid_in_tag_is_refused(version: str) -> None:
    with pytest.raises(Refused, match="is not a version of transformers"):
        recipe("pytorch", "2.0.1", cuda=True, transformers=version)


@pytest.mark.parametrize("name", ["A B", "x:", "Upper:1", "-x"])
def test_invalid_image_name_is_refused_before_build(tmp_path: Path, name: str) -> None:
    program(tmp_path, "buildah", "exit 1")
    tool = Tool("buildah", str(tmp_path / "buildah"))
    with pytest.raises(Refused, match="is not a name for an image"):
        build(recipe("pytorch", "2.0.1", cuda=True), tool, print, tag=name, wheels=None, rebuild=True)


def test_unknown_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no build argument CUDNN"):
        staged(tmp_path / "a", CUDNN="8")


def test_dlc_accepts_only_its_arguments(tmp_path: Path) -> None:
    wanted = recipe("pytorch", "2.0.1", cuda=True, dlc=True)
    assert isinstance(wanted, Recipe)
    stage(wanted, tmp_path, None)
    assert wanted.repository == "smdp-pytorch-dlc"


@pytest.mark.parametrize("asked", [{"dlc": True}, {"transformers": "4.28.1"}])
def test_pytorch_options_are_refused_for_other_frameworks(asked: dict[str, Any]) -> None:
    with pytest.raises(
        Refused, match=r"--(?:dlc|transformers) is only for PyTorch's image: see docs/how-to/own-image\.md"
    ):
        recipe("tensorflow", None, cuda=True, **asked)


def test_folder_without_wheels_is_reported(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "context").mkdir()
    with pytest.raises(EnvironmentProblem, match="contains no wheels"):
        stage(recipe("pytorch", "2.0.1", cuda=True), tmp_path / "context", tmp_path / "wheels")


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_missing_tools_give_install_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        EnvironmentProblem, match=r"docker: not installed.*buildah: not installed.*apt-get install buildah"
    ):
        find_tool()


def test_docker_without_daemon_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    program(tmp_path / "bin", "docker", "echo Cannot connect to the Docker daemon >&2; exit 1")
    with pytest.raises(EnvironmentProblem, match="docker: Cannot connect to the Docker daemon"):
        find_tool()
    program(tmp_path / "bin", "buildah", "exit 0")
    assert find_tool().name == "buildah"


def test_each_tool_gets_its_command_line(tmp_path: Path) -> None:
    for name in ("docker", "podman", "buildah"):
        tool = Tool(name, f"/bin/{name}")
        build = tool.build(tmp_path, "smdp-pytorch:1", {"EFA": "off", "BASE": "x:1"})
        assert build[:2] == [f"/bin/{name}", "build"]
        assert build[-1] == str(tmp_path)
        assert build[build.index("--tag") + 1] == "smdp-pytorch:1"
        assert [build[at + 1] for at, word in enumerate(build) if word == "--build-arg"] == ["BASE=x:1", "EFA=off"]
    pushed = Tool("buildah", "buildah").push("127.0.0.1:5000/a:1", plain_http=True, logins=tmp_path)
    assert "--tls-verify=false" in pushed
    assert "--tls-verify=false" not in Tool("buildah", "b").push("x.example/a:1", plain_http=False, logins=tmp_path)


def test_login_file_is_private_and_removed() -> None:
    with logged_in(Login("127.0.0.1:5000", "AWS", "word")) as folder:
        file = folder / "config.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "127.0.0.1:5000" in file.read_text()
    assert not folder.exists()


def test_login_keeps_docker_daemon_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "contexts" / "meta").mkdir(parents=True)
    own = {"currentContext": "desktop-linux", "auths": {"other.example": {"auth": "c2VjcmV0"}}, "credsStore": "desktop"}
    (tmp_path / "config.json").write_text(json.dumps(own))
    with logged_in(Login("127.0.0.1:5000", "AWS", "word")) as folder:
        settings = json.loads((folder / "config.json").read_text())
        assert settings.keys() == {"auths", "currentContext"}
        assert (settings["currentContext"], list(settings["auths"])) == ("desktop-linux", ["127.0.0.1:5000"])
        assert (folder / "contexts" / "meta").is_dir()
    assert (tmp_path / "contexts" / "meta").is_dir()
    for damaged in ("", "[]", '{"currentContext": 3}'):
        (tmp_path / "config.json").write_text(damaged)
        with logged_in(Login("127.0.0.1:5000", "AWS", "word")) as folder:
            assert list(json.loads((folder / "config.json").read_text())) == ["auths"]


def test_hanging_tool_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smdp_launch.image.tools._TIMEOUT", 0.2)
    program(tmp_path, "docker", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(EnvironmentProblem, match=r"docker: `docker version` did not answer within"):
        find_tool("docker")
    with pytest.raises(EnvironmentProblem, match=r"`docker inspect` did not answer within"):
        Tool("docker", str(tmp_path / "docker")).has("x:1")
