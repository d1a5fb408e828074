"""What is read from a script and its requirements, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.source.requirements import parse_requirements, read_requirements
from smdp_launch.source.scan import scan_source
from smdp_launch.source.script.modules import read_with_imports
from smdp_launch.source.script.script import parse_script, read_script
from tests.conftest import ROOT
from tests.launcher.source.folders import SCRIPTS, make
from tests.support.properties import examples

# Scripts


def test_template_script_is_read() -> None:
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
        "precision",
    }


def test_library_generations_are_distinguished() -> None:
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
        ("p.add_argument('--x', type=json.loads, default={'a': 1})", "json", {"a": 1}),
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
def test_options_have_type_and_default(text: str, kind: str, default: object) -> None:
    (option,) = parse_script(text.encode()).options
    assert (option.name, option.kind, option.default) == ("x", kind, default)


def test_variables_and_paths_are_read_from_all_code() -> None:
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
def test_invalid_python_3_is_problem_with_line(tmp_path: Path, raw: bytes, line: int | None) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(raw)
    problem = read_script(path).problem
    assert problem is not None
    assert problem.reason
    assert line is None or problem.line == line


def test_unreadable_script_is_problem(tmp_path: Path) -> None:
    problem = read_script(tmp_path / "none.py").problem
    assert problem is not None
    assert "cannot be read" in problem.reason


@examples(200)
@given(st.binary(max_size=200) | st.text(alphabet="ab()[]{}'\"\\\n:=.,@ 01%+-", max_size=200).map(str.encode))
def test_script_of_any_bytes_gives_no_traceback(raw: bytes) -> None:
    script = parse_script(raw)
    assert script.problem is None or script.problem.reason


def test_modules_of_folder_are_read_with_script(tmp_path: Path) -> None:
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


def test_requirements_have_names_versions_and_lines() -> None:
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
    assert found.packages[2].clauses == (("<", "2"), (">=", "1"))
    assert found.includes == (("other.txt", 7),)
    assert [one.line for one in found.problems] == [11, 12]
    assert "password" not in repr(found)


def test_local_paths_of_requirements_are_read() -> None:
    found = parse_requirements(
        "-r more.txt\n-c limits.txt\n-e ./libs/a[x]\n--editable=b\n./c ; python_version < '3.12'\nd/e\nf.whl\n.[dev]\n"
        "-r https://host/x.txt\n-e git+https://host/x\n/opt/x\nfile:///opt/x\n./${NAME}\ng @ https://host/y.whl\nnumpy\n"
    )
    paths = ["more.txt", "limits.txt", "./libs/a", "b", "./c", "d/e", "f.whl", "."]
    assert [(one.path, one.line) for one in found.paths] == list(zip(paths, range(1, 9), strict=True))
    assert found.problems == ()


def test_unreadable_requirements_are_problem(tmp_path: Path) -> None:
    assert not read_requirements(tmp_path / "requirements.txt").exists
    make(tmp_path, {"requirements.txt": b"numpy\n\xff\n"})
    (problem,) = read_requirements(tmp_path / "requirements.txt").problems
    assert (problem.line, problem.reason) == (2, "it is not UTF-8")


@given(st.text(max_size=200) | st.text(alphabet="ab-_.=<>~![],;#@\\ \n1", max_size=200))
def test_requirements_of_any_text_are_read(text: str) -> None:
    found = parse_requirements(text)
    assert all(one.line >= 1 and one.name == one.name.lower() for one in found.packages)
