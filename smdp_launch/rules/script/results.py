"""A model that the script saves where SageMaker does not upload it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place

#: What a script has that saves below /opt/ml, perhaps by a link or another working directory, or uploads by itself.
_UPLOADED = re.compile(
    r"\b(SM|SMDP|SAGEMAKER)_|/opt/ml|smdp_engine|sagemaker|chdir|symlink"
    r"|upload|log_artifact|log_model|push_to_hub|add_file|add_dir|put_object"
    r"|\b(boto3?|s3fs|fsspec|gcsfs|adlfs|smart_open|cloudpathlib|wandb\.save)\b|(s3|gs|hf)://"
)
_OUTPUT = re.compile(r"(out|save|model|checkpoint|ckpt|result).*(dir|path|folder)", re.IGNORECASE)


@rule("SMDP465", "script.entry", "script.hyperparameters", "environment", severity=Severity.WARNING)
def model_is_uploaded(facts: Facts) -> Iterator[Problem]:
    program, scripts, spec = facts.program, facts.scripts, facts.spec
    values = " ".join(map(str, [*spec.script.hyperparameters.values(), *spec.environment.values()]))
    is_known = (
        program.frameworks == ["pytorch"]
        and not facts.names_output_folder
        and not any(one.problem is not None or one.training.is_dynamic for one in scripts.values())
    )
    if not is_known or "/opt/ml" in values or any(_UPLOADED.search("\n".join(one.lines)) for one in scripts.values()):
        return
    saves = [(name, one) for name, file in program.files for one in file.model_saves]
    name, mark = next(((name, one.mark) for name, one in saves if one.is_model), ("", None))
    if mark is None or not all(one.is_lost for _, one in saves):
        return
    options = [one.name for script in scripts.values() for one in script.options if _OUTPUT.search(one.name)]
    message = "the script does not save below /opt/ml, so SageMaker does not upload what it saves"
    help_ = 'save to the folder os.environ["SM_MODEL_DIR"] (docs/how-to/ddp.md, change 4)'
    help_ += f", or write `{options[0]}: /opt/ml/model` in `script.hyperparameters`" if options else ""
    span = place(facts, name, mark)
    yield Problem((), message, help_, text=span.source[mark.column - 1 : mark.end_column - 1], place=span)
