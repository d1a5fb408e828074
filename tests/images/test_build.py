"""The images that `smdp-launch image build` builds."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tests.conftest import ROOT
from tests.images.base import buildah, commit, run_in
from tests.images.conftest import DOCKERFILES, FRAMEWORKS, Recipe

pytestmark = [pytest.mark.images, pytest.mark.timeout(1800)]
COMPILERS = re.compile(
    r"(?:[a-z0-9_]+-linux-gnu-)?(?:gcc|g\+\+|cc|c\+\+|cpp|c89|c99|clang(?:\+\+)?|ld|as|gold)(?:-\d+)?"
    r"|cc1|cc1plus|collect2|lto1|nvcc|ptxas|cicc|make|cmake|ninja|tcc|gfortran"
)
# A key has a body. Programs that read keys contain the first line too.
KEYS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+(?:[A-Za-z-]+: .*\s+)*[A-Za-z0-9+/]{32}")
PYTORCH, TENSORFLOW = (("pytorch", *FRAMEWORKS["pytorch"][0]), ("tensorflow", *FRAMEWORKS["tensorflow"][0]))
SECRETS = re.compile(r"(?i)password|passwd|secret|token|api_?key|access_?key|credential")
PRIVATE_FILES = {".netrc", ".pypirc", ".git-credentials", ".pgpass", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa"}
PRIVATE_FOLDERS = {".aws", ".ssh", ".docker", ".gnupg", ".config"}


def settings(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", image))["Docker"]
    return found


def layers(image: str, folder: Path) -> Iterator[tarfile.TarFile]:
    buildah("push", "--quiet", "--disable-compression", image, f"dir:{folder}")
    manifest = json.loads((folder / "manifest.json").read_text())
    for layer in manifest["layers"]:
        with tarfile.open(folder / layer["digest"].removeprefix("sha256:")) as tar:
            yield tar


@pytest.fixture(scope="session")
def files(any_image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[PurePosixPath, bytes]:
    """All files of all layers, with the start of their content.

    A file that a later layer deletes is still in the image. The marker of a deletion is not a file.
    """
    found = {}
    for tar in layers(any_image, tmp_path_factory.mktemp("layers")):
        for entry in tar:
            if entry.isdir() or PurePosixPath(entry.name).name.startswith(".wh."):
                continue
            content = tar.extractfile(entry) if entry.isfile() and entry.size else None
            path = PurePosixPath("/", entry.name)
            found[path] = content.read(4096) if content is not None else b""
    assert PurePosixPath("/opt/smdp/bin/train") in found
    assert len(found) > 5000
    return found


def test_tag_has_versions_and_content_hash(any_image: str, any_recipe: Recipe) -> None:
    python = any_recipe.python.replace(".", "")
    start = f"smdp-{any_recipe.framework}:{any_recipe.version}-cpu-py{python}-"
    assert re.fullmatch(rf"{re.escape(start)}[0-9a-f]{{12}}", any_image)
    again = any_recipe.build("--tag", "latest-test")
    assert again.stdout.strip() == any_image
    assert "the same image exists locally" in again.stderr
    other = f"smdp-{any_recipe.framework}:latest-test"
    assert settings(other)["config"] == settings(any_image)["config"]
    buildah("rmi", f"localhost/{other}")


def test_labels_match_image_contents(any_image: str, any_recipe: Recipe) -> None:
    labels = settings(any_image)["config"]["Labels"]
    report = (
        f"import json,platform,{any_recipe.module} as m; print(json.dumps([m.__version__, platform.python_version()]))"
    )
    framework, python = json.loads(run_in(any_image, "python", "-c", report))
    built = run_in(any_image, "python", "-c", "from smdp_engine._library import build; print(build())")
    assert labels["smdp.framework"] == any_recipe.framework
    assert framework.partition("+")[0] == labels["smdp.framework.version"] == any_recipe.version
    assert python.startswith(f"{labels['smdp.python']}.")
    assert built.partition("+")[0] == labels["smdp.engine"] == labels["org.opencontainers.image.version"]
    assert labels["smdp.cuda"] == ""
    assert labels["smdp.python"] == any_recipe.python


def test_image_starts_with_train(any_image: str) -> None:
    config = settings(any_image)["config"]
    assert not config.get("Entrypoint")
    assert config["Cmd"] == ["train"]
    assert run_in(any_image, "sh", "-c", "command -v train") == "/opt/smdp/bin/train"


def test_image_contains_engine_adapter(any_image: str, any_recipe: Recipe) -> None:
    assert run_in(any_image, "python", "-c", any_recipe.proof) == "loaded"


def test_import_registers_backend(image: str) -> None:
    script = (
        "import smdistributed.dataparallel.torch.torch_smddp, torch.distributed as d; print(d.Backend.backend_list)"
    )
    assert "smddp" in run_in(image, "python", "-c", script)


def test_requirements_file_can_be_installed(any_image: str) -> None:
    assert run_in(any_image, "sh", "-c", "command -v pip") == "/opt/smdp/bin/pip"


def test_libfabric_follows_build_argument(any_image: str) -> None:
    assert run_in(any_image, "sh", "-c", "ls /usr/lib/*/libfabric.so.1")


def test_mount_points_of_platform_are_empty(any_image: str) -> None:
    assert run_in(any_image, "ls", "/opt") == "smdp"


def test_no_layer_contains_compiler(files: dict[PurePosixPath, bytes]) -> None:
    assert [path for path in files if COMPILERS.fullmatch(path.name) and "site-packages" not in path.parts] == []


def test_compiler_check_matches_names() -> None:
    assert COMPILERS.fullmatch("x86_64-linux-gnu-g++-12")
    assert COMPILERS.fullmatch("g++")
    assert not COMPILERS.fullmatch("python3")


def test_no_layer_contains_cache_or_wheel(files: dict[PurePosixPath, bytes]) -> None:
    kept = [
        path
        for path in files
        if path.suffix in (".whl", ".deb")
        or ".cache" in path.parts
        or (path.is_relative_to("/var/lib/apt/lists") and path.name != "lock")
        or (path.parent.name == "archives" and path.suffix == ".deb")
    ]
    assert [path for path in kept if path.parts[-3:-1] != ("ensurepip", "_bundled")] == []


def test_no_layer_contains_key_or_login(files: dict[PurePosixPath, bytes]) -> None:
    assert [path for path, start in files.items() if KEYS.search(start)] == []
    assert [path for path in files if path.name in PRIVATE_FILES or path.name.startswith("ssh_host_")] == []
    homes = [path for path in files if path.is_relative_to("/root") or path.is_relative_to("/home")]
    assert [path for path in homes if PRIVATE_FOLDERS & set(path.parts)] == []
    accounts = files[PurePosixPath("/etc/shadow")].decode().splitlines()
    assert [line for line in accounts if line.split(":")[1] not in ("*", "!", "!*")] == []


@pytest.mark.parametrize(
    ("form", "locked"),
    [
        (PrivateFormat.PKCS8, False),
        (PrivateFormat.PKCS8, True),
        (PrivateFormat.TraditionalOpenSSL, False),
        (PrivateFormat.TraditionalOpenSSL, True),
        (PrivateFormat.OpenSSH, False),
    ],
)
def test_key_check_matches_body(form: PrivateFormat, locked: bool) -> None:
    lock = BestAvailableEncryption(b"of a key") if locked else NoEncryption()
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, form, lock)
    assert KEYS.search(key)
    assert KEYS.search(key.replace(b"\n", b"\r\n"))
    assert not KEYS.search(key.splitlines()[0] + b'\nif "-----END PRIVATE KEY-----" in text:')


def test_no_setting_contains_secret(any_image: str) -> None:
    found = settings(any_image)
    said = [*found["config"]["Env"], *found["config"]["Labels"]]
    said += [step.get("created_by", "") for step in found.get("history", [])]
    assert [one for one in said if SECRETS.search(one)] == []


def test_image_contains_nothing_of_checkout(files: dict[PurePosixPath, bytes]) -> None:
    assert [path for path in files if path.is_relative_to("/context") or path.is_relative_to(ROOT)] == []


@pytest.fixture(scope="session")
def third_party_image(any_recipe: Recipe, any_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with a framework and a compiler but without our packages, built from the stage before the last."""
    from smdp_launch.image.context import stage
    from smdp_launch.image.recipe import recipe as known

    args = {"BASE": any_recipe.base, "INDEX": "off", "PYTHON": any_recipe.python, "EFA": "distribution"}
    wanted = known(any_recipe.framework, any_recipe.version, cuda=False, args=args)
    folder = tmp_path_factory.mktemp("stage")
    stage(wanted, folder, any_recipe.wheels)
    flags = [word for name, value in sorted(wanted.args.items()) for word in ("--build-arg", f"{name}={value}")]
    name = f"localhost/smdp-test-stage-{any_recipe.framework}"
    buildah("build", "--quiet", "--format", "docker", "--layers", "--isolation", "chroot", "--target", "build",
            "--tag", name, *flags, folder)  # fmt: skip
    return commit(
        name,
        "pip uninstall --yes --quiet smdp-engine smdp-entrypoint; rm -rf /built",
        f"localhost/smdp-test-third-party-{any_recipe.framework}",
    )


@pytest.mark.parametrize("any_recipe", [PYTORCH], indirect=True, scope="session")
def test_deep_learning_container_can_be_extended(any_recipe: Recipe, third_party_image: str) -> None:
    built = replace(any_recipe, base=third_party_image).build("--dlc")
    assert built.returncode == 0, built.stderr
    name = built.stdout.strip()
    assert name.startswith("smdp-pytorch-dlc:")
    config = settings(name)["config"]
    assert not config.get("Entrypoint")
    assert config["Cmd"] == ["train"]
    assert run_in(name, "python3", "-c", any_recipe.proof) == "loaded"
    assert run_in(name, "sh", "-c", "command -v train").endswith("/train")
    # Some versions of buildah keep the mount point of the wheels, but not its contents.
    assert run_in(name, "sh", "-c", "ls -A /built 2>/dev/null || true") == ""


@pytest.mark.parametrize("any_recipe", [PYTORCH, TENSORFLOW], indirect=True, scope="session", ids=lambda one: one[0])
def test_wheel_installs_in_third_party_image(any_recipe: Recipe, third_party_image: str, tmp_path: Path) -> None:
    """The Dockerfile of docs/how-to/own-image.md, with the wheels of `make wheels`."""
    guide = (ROOT / "docs" / "how-to" / "own-image.md").read_text()
    (text,) = re.findall(r"^```dockerfile\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    proof = 'python3 -c "from smdp_engine import torch_backend; torch_backend.register()"'
    assert proof in text
    if any_recipe.framework == "tensorflow":
        (other,) = re.findall(r"^python3 -c .*tensorflow.*$", guide, re.MULTILINE)
        text = text.replace(proof, other)
    wheels = [*(ROOT / "dist" / "wheels").glob(f"{any_recipe.module}-{any_recipe.version}*/*.whl")]
    assert wheels, "make test-containers builds them first"
    (tmp_path / "wheels").mkdir()
    for wheel in wheels:
        (tmp_path / "wheels" / wheel.name).write_bytes(wheel.read_bytes())
    assert "FROM your-image:1.0" in text
    (tmp_path / "Dockerfile").write_text(text.replace("your-image:1.0", third_party_image))
    name = f"localhost/smdp-test-byoc-{any_recipe.framework}"
    buildah("build", "--quiet", "--format", "docker", "--isolation", "chroot", "--tag", name, tmp_path)
    drop_in = {"pytorch": "torch.torch_smddp", "tensorflow": "tensorflow"}[any_recipe.framework]
    run_in(name, "python3", "-c", f"import smdistributed.dataparallel.{drop_in}")
    assert run_in(name, "sh", "-c", "command -v train").endswith("/train")
    found = subprocess.run(["buildah", "rmi", "--force", name], capture_output=True, check=False)
    assert found.returncode == 0


def test_failing_build_shows_end_of_output(recipe: Recipe, tmp_path: Path) -> None:
    empty = tmp_path / "wheels"
    empty.mkdir()
    (empty / "nothing-1.0-py3-none-any.whl").write_bytes(b"no wheel")
    built = replace(recipe, wheels=empty).build()
    assert built.returncode == 4
    assert built.stdout == ""
    assert "buildah build failed" in built.stderr
    assert "No matching distribution found" in built.stderr


def test_unknown_build_argument_is_refused(recipe: Recipe) -> None:
    built = recipe.build("--arg", "CUDNN=8")
    assert built.returncode == 6
    assert "no build argument CUDNN" in built.stderr
    assert (DOCKERFILES / "pytorch" / "Dockerfile").exists()
