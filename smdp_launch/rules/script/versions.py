"""A framework that is too old for the script."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES, parts
from smdp_launch.diagnostics import Severity, Span
from smdp_launch.draft.needed_versions import Need, needs
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place
from smdp_launch.source.requirements import REQUIREMENTS_FILE

_FIELDS = (
    *("framework.name", "framework.version", "framework.transformers", "framework.python"),
    *("engine", "image", "policy", "script.entry", "script.source"),
)


@rule("SMDP466", *_FIELDS, severity=Severity.WARNING)
def framework_is_recent_enough(facts: Facts) -> Iterator[Problem]:
    framework = facts.spec.framework
    # The Hugging Face images contain transformers.
    installs = facts.requirements if framework.transformers is None else facts.requirements._replace(packages=())
    if framework.name != "pytorch" or facts.requirements.package("torch") is not None:
        return
    for one in needs(facts.program, installs, image_contents.python(facts.spec)):
        least = parts(one.version)
        if not one.certain or parts(framework.version) >= least[: framework.version.count(".") + 1]:
            continue
        message = (
            f"{one.what} needs {TITLES['pytorch']} {'.'.join(map(str, least[:2]))}; the job has {framework.version}"
        )
        suitable = [version for version in image_contents.suitable_versions(facts) if parts(version) >= least]
        help_ = f'write `version: "{suitable[-1]}"` in `framework`' if suitable else "choose another `engine`"
        help_ += ", and the image of that version in `image`" if facts.spec.image is not None and suitable else ""
        help_ += f", or require {one.what.partition(' ')[0]}<5" if one.requirement is not None else ""
        span = _place(facts, one)
        yield Problem((), message, help_, text=span.source[span.column - 1 : span.end_column - 1], place=span)


def _place(facts: Facts, need: Need) -> Span:
    if need.file is not None and need.imported is not None:
        return place(facts, need.file, need.imported.mark)
    line, text = (need.requirement.line, need.requirement.text) if need.requirement is not None else (1, "")
    file = str(facts.source.folder / REQUIREMENTS_FILE) if facts.source is not None else REQUIREMENTS_FILE
    return Span(file, line, 1, len(text) + 1, text)
