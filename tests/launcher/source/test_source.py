"""What travels, what stays, and what a script and its requirements say without being run."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.source import scan
from smdp_launch.source.archive import write_archive
from smdp_launch.source.ignore import IgnoreRules, parse_ignore
from smdp_launch.source.requirements import parse_requirements, read_requirements
from smdp_launch.source.scan import scan_source
from smdp_launch.source.script.modules import read_with_imports
from smdp_launch.source.script.outputs import output_folders
from smdp_launch.source.script.script import parse_script, read_script
from smdp_launch.source.walk import entries
from tests.conftest import ROOT
from tests.support.properties import examples

SCRIPTS = ROOT / "tests/launcher/scripts"


def make(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


# The ignore file


def test_ignored_files_stay_here_and_are_counted(tmp_path: Path) -> None:
    make(
        tmp_path, {"train.py": "x", "data/a.bin": "12345", "data/deep/b.bin": "123", "notes.txt": "1", "kept.txt": "1"}
    )
    make(tmp_path, {".smdpignore": "# mine\ndata/\n*.txt\n!kept.txt\n", "__pycache__/x.pyc": "x", ".git/config": "x"})
    tree = scan_source(tmp_path)
    assert [one.name for one in tree.files] == ["kept.txt", "train.py"]
    assert (tree.ignored.files, tree.ignored.size, tree.ignored.complete) == (3, 9, True)
    assert tree.ignored.names == ("data/", "notes.txt")
    assert tree.ignored.holds("data/deep/b.bin")
    assert not tree.ignored.holds("train.py")


def test_the_archive_and_the_hash_follow_the_ignore_file(tmp_path: Path) -> None:
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
def test_patterns_mean_what_git_means(tmp_path: Path, seed: int) -> None:
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
        return name == ".git" or rules.leaves_out(name, is_folder)

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
def test_a_line_that_says_nothing_is_told_and_the_others_hold(line: str, reason: str) -> None:
    rules = parse_ignore(f"# first\ndata/\r\n{line}\n")
    (problem,) = rules.problems
    assert (problem.line, problem.text) == (3, line)
    assert reason in problem.reason
    assert rules.leaves_out("data", True)


def test_an_ignore_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
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
def test_any_bytes_are_an_ignore_file(raw: bytes) -> None:
    rules = parse_ignore(raw.decode("utf-8-sig", errors="surrogateescape"))
    for problem in rules.problems:
        assert problem.line >= 1
        problem.text.encode()
    rules.leaves_out("some/file.py", False)


def test_a_folder_without_an_ignore_file_does_not_pay_for_one(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "x"})
    program = (
        "import sys; from pathlib import Path; from smdp_launch.source.scan import scan_source;"
        "scan_source(Path('.')); print('pathspec' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


# The size limit


def test_a_folder_over_the_limit_is_listed_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"train.py": "x" * 10})
    for name, megabytes in (("b.bin", 300), ("a.bin", 300), ("c.bin", 500)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(megabytes << 20)
    monkeypatch.setattr(scan, "_sha256", lambda path: pytest.fail(f"{path} was read"))
    tree = scan_source(tmp_path, limit_bytes=100_000_000)
    assert tree.too_large
    assert (tree.sha256, tree.limit_bytes, tree.size) == ("", 100_000_000, (1100 << 20) + 10)
    assert [one.name for one in tree.largest(3)] == ["c.bin", "a.bin", "b.bin"]


def test_what_is_ignored_does_not_count_towards_the_limit(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "x" * 10, "data/a": "x" * 100, ".smdpignore": "data"})
    assert not scan_source(tmp_path, limit_bytes=10).too_large
    assert scan_source(tmp_path, limit_bytes=9).too_large
    assert scan_source(tmp_path, limit_bytes=10).sha256 == scan_source(tmp_path).sha256 != ""


def test_a_limited_scan_does_not_list_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {f"{number:02}": "" for number in range(20)})
    monkeypatch.setattr(scan, "MAX_FILES", 20)
    assert scan_source(tmp_path, limit_bytes=1000).complete
    make(tmp_path, {"one more": ""})
    tree = scan_source(tmp_path, limit_bytes=1000)
    assert (tree.complete, tree.too_large, len(tree.files)) == (False, True, 20)
    assert scan_source(tmp_path).complete


def test_counting_what_is_ignored_does_not_go_on_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {f"data/{number:02}": "12" for number in range(20)} | {".smdpignore": "data/", "train.py": ""})
    monkeypatch.setattr(scan, "_MAX_COUNTED", 5)
    ignored = scan_source(tmp_path).ignored
    assert (ignored.files, ignored.size, ignored.complete, ignored.names) == (5, 10, False, ("data/",))


# Secrets and names

PRIVATE = "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n"
PUBLIC = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"


def test_files_that_hold_secrets_are_named(tmp_path: Path) -> None:
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
def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": "x"})
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py"))).write_text("x")
    tree = scan_source(tmp_path)
    assert [one.name for one in tree.files] == ["train.py"]
    assert tree.unreadable == (("\\udcff.py", "its name is not UTF-8"),)


# Scripts


def test_the_template_script_is_understood() -> None:
    script = read_script(ROOT / "templates" / "scripts" / "mnist_ddp.py")
    assert script.problem is None
    assert (script.frameworks, script.library, script.has_main) == (["pytorch"], "backend", True)
    assert [one.backend for one in script.process_groups] == ["smddp"]
    assert (script.channels, script.keeps_checkpoints) == (["train", "test"], True)
    known = {one.name: (one.kind, one.default) for one in script.options if not one.from_environment}
    assert known["lr"] == ("float", 0.05)
    assert known["backend"] == ("text", "smddp")
    assert {one.name for one in script.options if one.from_environment} == {
        "train",
        "test",
        "model-dir",
        "checkpoint-dir",
    }


def test_the_generations_of_the_library_are_told_apart() -> None:
    module = read_script(SCRIPTS / "own_module" / "main.py")
    tensorflow = parse_script(b"import smdistributed.dataparallel.tensorflow as sdp")
    assert (module.library, module.frameworks, module.channels) == ("module", ["pytorch"], ["numbers"])
    assert (tensorflow.library, tensorflow.frameworks) == ("tensorflow", ["tensorflow"])
    backend = parse_script(b"import torch.distributed as d\nd.init_process_group(backend='smddp')")
    assert backend.library == "backend"
    assert parse_script(b"import torch.distributed as d\nd.init_process_group('nccl')").library is None


@pytest.mark.parametrize(
    ("text", "kind", "default"),
    [
        ("p.add_argument('--x', type=int, default=-3)", "int", -3),
        ("p.add_argument('-x', '--x', default='no')", "text", "no"),
        ("D = 1e-4\np.add_argument('--x', type=float, default=D)", "float", 1e-4),
        ("D = 1\nD = 2\np.add_argument('--x', type=int, default=D)", "int", None),
        ("p.add_argument('--x', action='store_true')", "flag", None),
        ("p.add_argument('--x', action=argparse.BooleanOptionalAction, default=True)", "flag", True),
        ("p.add_argument('--x', nargs='*', default=(1, 2))", "several", [1, 2]),
        ("p.add_argument('--x', type=bool, default=False)", "truthy", False),
        ("p.add_argument('--x', type=json.loads, default={'a': 1})", "other", {"a": 1}),
        ("p.add_argument('--x', default=os.cpu_count())", "text", None),
        ("p.add_argument('--x', type=float, default=1e999)", "float", None),
        ("p.add_argument('--x', default='\\ud800')", "text", None),
        ("p.add_argument('--x', default=b'')", "text", None),
        ("p.add_argument('--x', default={1: 2})", "text", None),
        ("@click.option('--x', default=3)\ndef f(): pass", "int", 3),
        ("@click.option('--x', is_flag=True)\ndef f(): pass", "flag", None),
        ("@click.option('--x/--no-x', default=True)\ndef f(): pass", "flag", True),
        ("@click.option('--x', multiple=True)\ndef f(): pass", "several", None),
        ("@click.option('--x', type=bool, default=False)\ndef f(): pass", "bool", False),
        ("@click.option('--x', type=click.INT)\ndef f(): pass", "int", None),
    ],
)
def test_options_have_their_type_and_default(text: str, kind: str, default: object) -> None:
    (option,) = parse_script(text.encode()).options
    assert (option.name, option.kind, option.default) == ("x", kind, default)


def test_variables_and_paths_are_found_wherever_they_stand() -> None:
    script = parse_script(
        b'"""Writes to /opt/ml/model, says this docstring."""\n'
        b"import os\n"
        b"from os import environ\n"
        b"a = os.environ['SM_CHANNEL_TRAIN']\n"
        b"b = os.getenv('HOME')\n"
        b"c = environ.get('SM_MODEL_DIR', '/opt/ml/model')\n"
        b"get = os.environ.get\n"
        b"d = get('SM_CHANNEL_EVAL')\n"
        b"os.environ['WRITTEN'] = '1'\n"
        b"open('/opt/ml/input/data/extra/x')\n"
    )
    assert [(one.name, one.line) for one in script.environment] == [
        ("SM_CHANNEL_TRAIN", 4),
        ("HOME", 5),
        ("SM_MODEL_DIR", 6),
        ("SM_CHANNEL_EVAL", 8),
    ]
    assert [(one.name, one.line) for one in script.literal_paths] == [
        ("/opt/ml/model", 6),
        ("/opt/ml/input/data/extra/x", 10),
    ]
    assert script.channels == ["train", "eval", "extra"]


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"import torch\nprint 'x'\n", 2),
        (b"try:\n    pass\nexcept ValueError, error:\n    pass\n", 3),
        (b"x = (\n", 1),
        (b"\0", None),
        (b"# coding: nothing\n", None),
        (b"x = '\xff'\n", None),
        (b"(" * 5000, None),
        (b"-" * 200_000 + b"1", None),
        (b"a" + b".b" * 50_000, None),
        (b"x = " + b"1" * 5000, None),
        (b"#" * ((256 << 10) + 1), None),
    ],
    ids=lambda one: repr(one[:12]) if isinstance(one, bytes) else None,
)
def test_what_is_not_python_3_is_a_problem_with_its_line(tmp_path: Path, raw: bytes, line: int | None) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(raw)
    problem = read_script(path).problem
    assert problem is not None
    assert problem.reason
    assert line is None or problem.line == line


def test_a_script_that_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    problem = read_script(tmp_path / "none.py").problem
    assert problem is not None
    assert "cannot be read" in problem.reason


@examples(200)
@given(st.binary(max_size=200) | st.text(alphabet="ab()[]{}'\"\\\n:=.,@ 01%+-", max_size=200).map(str.encode))
def test_any_bytes_are_read_without_a_traceback(raw: bytes) -> None:
    script = parse_script(raw)
    assert script.problem is None or script.problem.reason


def test_modules_of_the_folder_are_read_with_the_script(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "jobs/train.py": "import helper, common.data\nfrom common.settings import parser\n",
            "jobs/helper.py": "import os\nos.environ['SM_CHANNEL_ONE']\n",
            "common/__init__.py": "",
            "common/data.py": "from . import settings\nfrom ..jobs import train\n",
            "common/settings.py": "import train\n",
            "unused.py": "x",
        },
    )
    read = read_with_imports(scan_source(tmp_path), "jobs/train.py")
    assert next(iter(read)) == "jobs/train.py"
    assert set(read) == {
        "jobs/train.py",
        "jobs/helper.py",
        "common/__init__.py",
        "common/data.py",
        "common/settings.py",
    }
    assert read["jobs/helper.py"].channels == ["one"]


# Requirements


def test_requirements_are_names_versions_and_lines() -> None:
    found = parse_requirements(
        "# comment\n"
        "torch==2.0.1+cu118  # pinned\n"
        "tensorflow-gpu ~= 2.11.0 ; python_version < '3.12'\n"
        "A_b.C[x,y] >=1,<2\n"
        "numpy \\\n"
        "  ==1.24.* --hash=sha256:aa\n"
        "-r other.txt\n"
        "--index-url https://user:password@host/simple\n"
        "git+https://host/x@y\n"
        "foo @ https://host/y.whl\n"
        "torch == \n"
        "==2\n"
    )
    assert [(one.name, one.line, one.pin) for one in found.packages] == [
        ("torch", 2, "2.0.1"),
        ("tensorflow-gpu", 3, None),
        ("a-b-c", 4, None),
        ("numpy", 5, "1.24"),
        ("foo", 10, None),
    ]
    assert found.packages[2].clauses == ((">=", "1"), ("<", "2"))
    assert found.includes == (("other.txt", 7),)
    assert [one.line for one in found.problems] == [11, 12]
    assert "password" not in repr(found)


def test_requirements_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    assert not read_requirements(tmp_path / "requirements.txt").exists
    make(tmp_path, {"requirements.txt": b"numpy\n\xff\n"})
    (problem,) = read_requirements(tmp_path / "requirements.txt").problems
    assert (problem.line, problem.reason) == (2, "it is not UTF-8")


@given(st.text(max_size=200) | st.text(alphabet="ab-_.=<>~![],;#@\\ \n1", max_size=200))
def test_any_text_is_read_as_requirements(text: str) -> None:
    found = parse_requirements(text)
    assert all(one.line >= 1 and one.name == one.name.lower() for one in found.packages)


def test_the_current_folder_is_a_source_as_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_the_script_wrote_when_it_was_run_by_hand_is_not_uploaded(tmp_path: Path, default: str) -> None:
    (tmp_path / "train.py").write_text(f"import os\n{default}\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.pt").write_bytes(bytes(1000))
    before = scan_source(tmp_path)
    tree = scan_source(tmp_path, outputs=output_folders(tmp_path, "train.py"))
    if "strip" in default:  # no literal beside the variable: the folder may be anything
        assert tree == before
        return
    assert [one.name for one in tree.files] == ["train.py"]
    assert tree.outputs == ("model",)
    assert tree.sha256 != before.sha256


@pytest.mark.parametrize("default", ["../model", "/opt/ml/model", ".", "missing"])
def test_a_folder_elsewhere_is_no_output_of_the_source(tmp_path: Path, default: str) -> None:
    (tmp_path / "train.py").write_text(f'import os\nos.environ.get("SM_MODEL_DIR", "{default}")\n')
    assert output_folders(tmp_path, "train.py") == frozenset()


def test_a_package_is_uploaded_whatever_the_script_calls_its_outputs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import os, model\nos.environ.get("SM_MODEL_DIR", "model")\n')
    for name in ("model", "wandb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    tree = scan_source(tmp_path, outputs=output_folders(tmp_path, "train.py"))
    assert [one.name for one in tree.files] == ["model/__init__.py", "train.py", "wandb/__init__.py"]


def test_what_tools_for_tracking_runs_write_is_not_uploaded(tmp_path: Path) -> None:
    for name in ("wandb", "lightning_logs", "mlruns"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "events").write_text("")
    (tmp_path / "train.py").write_text("")
    assert [one.name for one in scan_source(tmp_path).files] == ["train.py"]
