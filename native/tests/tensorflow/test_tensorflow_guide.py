"""The guide's code computes the same before and after the change, and with Keras."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import ranks

pytestmark = pytest.mark.tensorflow
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "tensorflow.md"


def test_guides_three_scripts_print_the_same_loss() -> None:
    before, after, keras = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", before],
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    said = ran.stdout.strip()
    assert re.fullmatch(r"loss 0\.\d{5}", said)
    outcomes = ranks.start([2, 2], after, preamble="", env=quiet).finish()
    assert [outcome.out.strip() for outcome in outcomes] == [said, "", "", ""], outcomes
    # Keras prints the mean loss of an epoch of one step, which is the loss before the update, as in the loop.
    outcomes = ranks.start([2, 2], keras, preamble="", env=quiet).finish()
    assert [outcome.out.strip() for outcome in outcomes] == [said, "", "", ""], outcomes
