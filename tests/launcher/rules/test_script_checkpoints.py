"""The rule about checkpoints that SageMaker does not upload (SMDP518), and the section that ``init`` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smdp_launch.source.script.script import read_script
from tests.conftest import ROOT
from tests.launcher.rules.scripts import codes, only, reported

IMPORT = "import torch\nfrom smdp_engine.checkpoint import Checkpoints, ShardedCheckpoints, StopFlag\n"
OUTPUT = 'output: {s3: "s3://bucket/output"}'


def test_first_script_of_the_guide_needs_the_section(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "how-to" / "checkpoints.md").read_text()
    script = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)[0]
    one = only([one for one in reported(tmp_path, script) if one.code.startswith("SMDP5")])
    assert (one.code, one.text) == ("SMDP518", "checkpoints.save")
    assert "checkpoint: {s3: s3://bucket/output/checkpoints}" in one.help
    assert read_script(tmp_path / "src" / "train.py").keeps_checkpoints
    (section,) = re.findall(r"^```yaml\n(checkpoint:\n.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert "SMDP518" not in codes(reported(tmp_path, script, [(OUTPUT, f"{OUTPUT}\n{section}")]))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("kept = ShardedCheckpoints(keep_last=3)\nkept.async_save(1)\n", True),
        ("class A:\n    def __init__(self): self.kept = Checkpoints()\n    def go(self): self.kept.save(1)\n", True),
        ("Checkpoints().load()\n", False),
        ("kept = Checkpoints()\nmodel.save('out')\nkept.load()\n", False),
        ("kept = Checkpoints('/opt/ml/model')\nkept.save(1)\n", False),
        ("kept = Checkpoints(folder=options.folder)\nkept.save(1)\n", False),
        ("kept = Checkpoints(**options)\nkept.save(1)\n", False),
        ("stop = StopFlag()\n", False),
    ],
)
def test_only_saves_to_the_default_folder_are_reported(tmp_path: Path, script: str, expected: bool) -> None:
    assert ("SMDP518" in codes(reported(tmp_path, IMPORT + script))) == expected


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("from smdp_engine.checkpoint import StopFlag, TensorFlowCheckpoints", True),
        ("import smdp_engine.checkpoint as kept", True),
        ("from smdp_engine.checkpoint import StopFlag", False),
        ("from smdp_engine import progress", False),
    ],
)
def test_imports_of_the_classes_keep_checkpoints(tmp_path: Path, imports: str, expected: bool) -> None:
    (tmp_path / "train.py").write_text(f"{imports}\n")
    assert read_script(tmp_path / "train.py").keeps_checkpoints == expected
