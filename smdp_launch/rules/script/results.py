"""A model that the script saves where SageMaker does not upload it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place
from smdp_launch.source.syntax.tree import Mark

#: Methods of trainers and models, beside the calls of ``source.script.saves``.
_METHODS = ("save_model", "save_pretrained", "save_checkpoint")
#: What a script reads that saves below /opt/ml.
_UPLOADED = re.compile(r"\b(SM|SMDP|SAGEMAKER)_|/opt/ml|smdp_engine|sagemaker")
_OUTPUT = re.compile(r"(out|save|model|checkpoint|ckpt|result).*(dir|path|folder)", re.IGNORECASE)


@rule("SMDP465", "script.entry", "script.hyperparameters", "environment", severity=Severity.WARNING)
def model_is_uploaded(facts: Facts) -> Iterator[Problem]:
    program, scripts, spec = facts.program, facts.scripts, facts.spec
    values = " ".join(map(str, [*spec.script.hyperparameters.values(), *spec.environment.values()]))
    is_known = program.frameworks == ["pytorch"] and not any(
        one.problem is not None or one.training.is_dynamic for one in scripts.values()
    )
    if not is_known or "/opt/ml" in values or any(_UPLOADED.search("\n".join(one.lines)) for one in scripts.values()):
        return
    found = next(_saves(facts), None)
    if found is None:
        return
    name, mark = found
    options = [one.name for script in scripts.values() for one in script.options if _OUTPUT.search(one.name)]
    message = "the script does not save below /opt/ml, so SageMaker does not upload what it saves"
    help_ = 'save to the folder os.environ["SM_MODEL_DIR"] (docs/how-to/ddp.md, change 4)'
    help_ += f", or write `{options[0]}: /opt/ml/model` in `script.hyperparameters`" if options else ""
    span = place(facts, name, mark)
    yield Problem((), message, help_, text=span.source[mark.column - 1 : mark.end_column - 1], place=span)


def _saves(facts: Facts) -> Iterator[tuple[str, Mark]]:
    for name, file in facts.program.files:
        yield from ((name, one.mark) for one in file.saves)
        for line, _ in (at for method in _METHODS for at in file.calls.get(method, ())):
            text = facts.scripts[name].lines[line - 1]
            yield name, Mark(line, len(text) - len(text.lstrip()) + 1, len(text.rstrip()) + 1)
