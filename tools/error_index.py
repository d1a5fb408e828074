"""Write docs/reference/errors.md, the index of the codes, from their pages.

python tools/error_index.py            # rewrite it
python tools/error_index.py --check    # report whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from smdp_launch.rules.base.pages import codes, title

INDEX = Path(__file__).resolve().parent.parent / "docs" / "reference" / "errors.md"
GROUPS = {
    "1": "YAML",
    "2": "The schema and the configuration sources",
    "3": "Compute, framework, image and serving hosts",
    "4": "Source, data, network and scripts",
    "5": "Spot, batch size, precision, sweeps, retries and notifications",
    "6": "Request, metrics and trackers",
    "7": "Secrets and stored checkpoints",
    "8": "Account, budgets and endpoints",
    "9": "Run time",
}
HEAD = """\
# Error codes

`validate` reports all diagnostics of a job file at once. Commands that read a job file, such as `plan` and
`launch`, run the same checks before they start. Each diagnostic has a code and a reason. Most diagnostics also have
a position in the file and a fix. Each code has a page. `smdp-launch explain CODE` prints this page.

There are three kinds of diagnostics:

- An error: SageMaker would refuse the job, or the job would not work as the job file describes.
- A warning: advice. To hide a warning, write `silence: [CODE]` in the job file.
- A note: information.

The page of a code shows examples, which are parts of one job file. The other values of this job file are: `engine:
native`, 2 hosts of `ml.p4d.24xlarge` (16 GPUs) in us-east-1, `max_run: 600`, the channel `train` and the script
`src/train.py`. The comments of an example describe what is not in the job file: `# file PATH: TEXT` is a file with
this text, `# account ...` is the state of the AWS account, `# without KEY` means that the job file does not have
this key, and `# preflight` or `# launch` is the command that reports the error. A Python block after the job file
is the training script.
"""


def main() -> int:
    stale = not INDEX.exists() or INDEX.read_text() != index()
    if "--check" in sys.argv:
        if stale:
            print("docs/reference/errors.md is stale: run tools/error_index.py")
        return int(stale)
    INDEX.write_text(index())
    return 0


def index() -> str:
    """Return the page, with one table for each group that has codes."""
    tables = [_table(name, [code for code in codes() if code[4] == digit]) for digit, name in GROUPS.items()]
    return "\n".join([HEAD, *filter(None, tables)])


def _table(name: str, group: list[str]) -> str:
    rows = [f"| [{code}](../errors/{code}.md) | {title(code)} |" for code in group]
    return "\n".join([f"## {name}", "", "| code | problem |", "|---|---|", *rows]) + "\n" if group else ""


if __name__ == "__main__":
    sys.exit(main())
