"""A local rank that comes from the command line, on which no launcher of the job passes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place, whole_line
from smdp_launch.source.commandline.options import Option

_NAMES = ("local_rank", "local-rank")
#: A use of the option for a device, in code without comments.
_DEVICE = re.compile(r"(device|cuda|gpu).*\.local_rank\b|\.local_rank\b.*(device|cuda|gpu)", re.IGNORECASE)
#: The script may set the value itself, or a package does.
_SET_ELSEWHERE = re.compile(
    r"LOCAL_RANK|\.local_rank\s*=[^=]|local_rank\s*\(|get_node_local_rank|setattr|set_defaults|\benv_args\b"
    r"|\b(deepspeed|accelerate|lightning|pytorch_lightning|transformers|horovod|colossalai|smdistributed)\b"
)


@rule("SMDP468", "script.entry", "script.hyperparameters", "framework.name", severity=Severity.WARNING)
def local_rank_is_read(facts: Facts) -> Iterator[Problem]:
    scripts = facts.scripts
    if any(one.problem is not None or one.training.is_dynamic for one in scripts.values()):
        return
    lines = [line.partition("#")[0] for script in scripts.values() for line in script.lines]
    options = [(name, one) for name, script in scripts.items() for one in script.options if one.name in _NAMES]
    if len(options) != 1 or any(map(_SET_ELSEWHERE.search, lines)) or not any(map(_DEVICE.search, lines)):
        return
    yield _problem(facts, *options[0])


def _problem(facts: Facts, name: str, option: Option) -> Problem:
    span = place(facts, name, whole_line(facts, name, option.line))
    message = f"no launcher passes --{option.name}, so every worker of a host uses the same GPU"
    help_ = 'read the local rank with int(os.environ["LOCAL_RANK"])'
    return Problem((), message, help_, text=span.source.strip(), place=span)
