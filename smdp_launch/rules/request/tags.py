"""The tags of the job."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.rules.base.facts import Facts, Problem, rule

_RESERVED = "aws:"
#: The prefix of the launcher's own tags.
_OWN = "smdp-launch:"


@rule("SMDP608", "tags")
def tag_keys_are_not_reserved(facts: Facts) -> Iterator[Problem]:
    for key in facts.spec.tags:
        if key.startswith(_OWN):
            message = f"the tag {key} is reserved: the launcher sets the tags whose keys begin with {_OWN}"
            yield Problem(("tags", key), message, "choose another name, or remove it", on_key=True)
        if key.lower().startswith(_RESERVED):
            message = f"AWS refuses the tag {key}: keys that begin with {_RESERVED} are reserved"
            other = key[len(_RESERVED) :].strip()
            help_ = f"choose another name, such as {other}, or remove it" if other else "remove it"
            yield Problem(("tags", key), message, help_, on_key=True)
