"""The source folder: which files are uploaded."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.source import scan
from smdp_launch.source.archive import write_archive
from smdp_launch.source.ignore import IgnoreRules, parse_ignore
from smdp_launch.source.scan import scan_source
from smdp_launch.source.script.outputs import output_folders
from smdp_launch.source.walk import entries
from tests.launcher.source.folders import make

# The ignore file


def test_ignored_files_are_counted_but_not_uploaded(tmp_path: Path) -> None:
    make(
        tmp_path, {"train.py": "x", "data/a.bin": "12345", "data/deep/b.bin": "123", "notes.txt": "1", "kept.txt": "1"}
    )
    make(tmp_path, {".smdpignore": "# mine\ndata/\n*.txt\n!kept.txt\n", "__pycache__/x.pyc": "x", ".git/config": "x"})
    tree = scan_source(tmp_path)
    assert [one.name for one in tree.files] == ["kept.txt", "train.py"]
    assert (tree.ignored.files, tree.ignored.size, tree.ignored.complete) == (3, 9, True)
    assert tree.ignored.names == ("data/", "notes.txt")
    assert tree.ignored.includes("data/deep/b.bin")
    assert not tree.ignored.includes("train.py")


def test_archive_and_hash_exclude_ignored_files(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "x", "data/a.bin": "12345"})
    whole = scan_source(tmp_path)
    make(tmp_path, {".smdpignore": "data\n"})
    tree = scan_source(tmp_path)
    assert tree.sha256 != whole.sha256
    file = io.BytesIO()
    write_archive(tree, file)
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        assert tar.getnames() == ["train.py"]
    make(tmp_path, {"data/a.bin": "67890"})
    assert scan_source(tmp_path).sha256 == tree.sha256


@pytest.mark.parametrize("seed", range(8))
def test_patterns_match_like_git(tmp_path: Path, seed: int) -> None:
    folders = ["", "a/", "b/", "a/b/", "a/a/", "ab/", "b/ab/a/"]
    make(tmp_path, {folder + name: "" for folder in folders for name in ["f", "x.py", "y.txt", "#x", "!y", "k", "-"]})
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    chance = random.Random(seed)
    for _ in range(40):
        text = "".join(f"{random_pattern(chance)}\n" for _ in range(chance.randint(1, 4)))
        (tmp_path / ".git" / "patterns").write_text(text)
        command = ["git", "ls-files", "-z", "--others", "--exclude-from", ".git/patterns"]
        listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        ours = not_ignored(tmp_path, parse_ignore(text))
        assert sorted(ours) == sorted(listed.split("\0")[:-1]), text


def not_ignored(folder: Path, rules: IgnoreRules) -> list[str]:
    def skip(name: str, is_folder: bool) -> bool:
        return name == ".git" or rules.excludes(name, is_folder)

    return [one.name for one in entries(folder, skip)]


PARTS = ["a", "b", "ab", "*", "**", "?", "a*", "*.py", "f", "x.py", "[ab]", "[!a]", "k", "*b", "[a-z]*", "."]
PARTS += ["#x", "\\#x", "!y", "\\!y"]


def random_pattern(chance: random.Random) -> str:
    text = "/".join(chance.choice(PARTS) for _ in range(chance.randint(1, 3)))
    before = chance.choice(["", "", "", "/", "!", "!", "!/"])
    return before + text + chance.choice(["", "", "", "/", " "])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("!", "no file can match"),
        ("/", "no file can match"),
        ("data[", "no file can match"),
        ("data\\", "no file can match"),
        ("[z-a]", "no file can match"),
        ("[[:digit:]]x", "[0-9]"),
        ("*a*a*a*a*a*a*a*b", "wildcards"),
    ],
)
def test_invalid_pattern_is_reported_and_others_apply(line: str, reason: str) -> None:
    rules = parse_ignore(f"# first\ndata/\r\n{line}\n")
    (problem,) = rules.problems
    assert (problem.line, problem.text) == (3, line)
    assert reason in problem.reason
    assert rules.excludes("data", True)


def test_unusable_ignore_file_is_reported(tmp_path: Path) -> None:
    make(tmp_path, {".smdpignore": b"data/\n\xff\xfe\n"})
    (problem,) = scan_source(tmp_path).ignore_problems
    assert (problem.line, problem.reason) == (2, "it is not UTF-8")
    make(tmp_path, {".smdpignore": b"x\n" * 40_000})
    (problem,) = scan_source(tmp_path).ignore_problems
    assert problem.line == 0
    assert "bytes" in problem.reason
    (tmp_path / ".smdpignore").unlink()
    (tmp_path / ".smdpignore").mkdir()
    (problem,) = scan_source(tmp_path).ignore_problems
    assert "cannot be read" in problem.reason


@given(st.binary(max_size=300))
def test_ignore_file_of_any_bytes_is_read(raw: bytes) -> None:
    rules = parse_ignore(raw.decode("utf-8-sig", errors="surrogateescape"))
    for problem in rules.problems:
        assert problem.line >= 1
        problem.text.encode()
    rules.excludes("some/file.py", False)


def test_pathspec_is_not_imported_without_ignore_file(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "x"})
    program = (
        "import sys; from pathlib import Path; from smdp_launch.source.scan import scan_source;"
        "scan_source(Path('.')); print('pathspec' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


# The size limit


def test_folder_over_limit_is_listed_but_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"train.py": "x" * 10})
    for name, megabytes in (("b.bin", 300), ("a.bin", 300), ("c.bin", 500)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(megabytes << 20)
    monkeypatch.setattr(scan, "_sha256", lambda path: pytest.fail(f"{path} was read"))
    tree = scan_source(tmp_path, limit_bytes=100_000_000)
    assert tree.too_large
    assert (tree.sha256, tree.limit_bytes, tree.size) == ("", 100_000_000, (1100 << 20) + 10)
    assert [one.name for one in tree.largest(3)] == ["c.bin", "a.bin", "b.bin"]


def test_ignored_files_do_not_count_towards_limit(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "x" * 10, "data/a": "x" * 100, ".smdpignore": "data"})
    assert not scan_source(tmp_path, limit_bytes=10).too_large
    assert scan_source(tmp_path, limit_bytes=9).too_large
    assert scan_source(tmp_path, limit_bytes=10).sha256 == scan_source(tmp_path).sha256 != ""


def test_limited_scan_stops_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {f"{number:02}": "" for number in range(20)})
    monkeypatch.setattr(scan, "MAX_FILES", 20)
    assert scan_source(tmp_path, limit_bytes=1000).complete
    make(tmp_path, {"one more": ""})
    tree = scan_source(tmp_path, limit_bytes=1000)
    assert (tree.complete, tree.too_large, len(tree.files)) == (False, True, 20)
    assert scan_source(tmp_path).complete


def test_counting_ignored_files_stops_at_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {f"data/{number:02}": "12" for number in range(20)} | {".smdpignore": "data/", "train.py": ""})
    monkeypatch.setattr(scan, "_MAX_COUNTED", 5)
    ignored = scan_source(tmp_path).ignored
    assert (ignored.files, ignored.size, ignored.complete, ignored.names) == (5, 10, False, ("data/",))


# Secrets and names

PRIVATE = "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n"
PUBLIC = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"


def test_files_with_secrets_are_reported(tmp_path: Path) -> None:
    secret = [
        ".aws/config",
        ".env",
        ".env.production",
        ".netrc",
        ".ssh/known",
        "conf/id_rsa",
        "credentials.json",
        "k.p12",
    ]
    make(tmp_path, dict.fromkeys(secret, "x") | {"key.pem": PRIVATE, "raw.key": "\0\1"})
    make(
        tmp_path,
        {".env.example": "x", "ca.pem": PUBLIC, "environment.py": "x", "id_rsa.pub": "x", "credentials.py": "x"},
    )
    found = {one.name: one.what for one in scan_source(tmp_path).suspicious}
    assert sorted(found) == sorted([*secret, "key.pem", "raw.key"])
    assert found["key.pem"] == "a private key"
    make(tmp_path, {".smdpignore": ".env*\n.aws\n.ssh\n.netrc\nconf\ncredentials.json\n*.p12\n*.pem\n*.key\n"})
    assert scan_source(tmp_path).suspicious == ()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "x"})
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py"))).write_text("x")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/empty\xff"))).mkdir()
    tree = scan_source(tmp_path)
    assert [one.name for one in tree.files] == ["train.py"]
    reason = "its name is not UTF-8"
    assert tree.unreadable == (("\\udcff.py", reason), ("empty\\udcff", reason))


def test_current_folder_can_be_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / "lib" / "deep" / "a.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert [one.name for one in scan_source(Path()).files] == ["lib/deep/a.py"]


@pytest.mark.parametrize(
    "default",
    [
        'os.environ.get("SM_MODEL_DIR", "model")',
        "os.getenv('SM_OUTPUT_DATA_DIR', 'model')",
        'os.environ.get("SM_MODEL_DIR") or "model/"',
        'parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "./model".strip("./")))',
    ],
)
def test_outputs_of_manual_runs_are_not_uploaded(tmp_path: Path, default: str) -> None:
    (tmp_path / "train.py").write_text(f"import os\n{default}\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.pt").write_bytes(bytes(1000))
    before = scan_source(tmp_path)
    tree = scan_source(tmp_path, outputs=output_folders(tmp_path, "train.py"))
    if "strip" in default:  # the default is not a literal, so the folder is not known
        assert tree == before
        return
    assert [one.name for one in tree.files] == ["train.py"]
    assert tree.outputs == ("model",)
    assert tree.sha256 != before.sha256


@pytest.mark.parametrize("default", ["../model", "/opt/ml/model", ".", "missing"])
def test_folder_outside_source_is_not_an_output(tmp_path: Path, default: str) -> None:
    (tmp_path / "train.py").write_text(f'import os\nos.environ.get("SM_MODEL_DIR", "{default}")\n')
    assert output_folders(tmp_path, "train.py") == frozenset()


def test_package_with_name_of_output_folder_is_uploaded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import os, model\nos.environ.get("SM_MODEL_DIR", "model")\n')
    for name in ("model", "wandb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    tree = scan_source(tmp_path, outputs=output_folders(tmp_path, "train.py"))
    assert [one.name for one in tree.files] == ["model/__init__.py", "train.py", "wandb/__init__.py"]


def test_folders_of_experiment_trackers_are_not_uploaded(tmp_path: Path) -> None:
    for name in ("wandb", "lightning_logs", "mlruns"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "events").write_text("")
    (tmp_path / "train.py").write_text("")
    assert [one.name for one in scan_source(tmp_path).files] == ["train.py"]
