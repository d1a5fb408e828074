"""The tags of the job."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.rules.base.facts import Facts, Finding, rule

_RESERVED = "aws:"


@rule("SMDP608", "tags")
def tag_keys_of_ones_own(facts: Facts) -> Iterator[Finding]:
    for key in facts.spec.tags:
        if key.lower().startswith(_RESERVED):
            message = f"AWS refuses the tag {key}: keys that begin with {_RESERVED} are its own"
            own = key[len(_RESERVED) :].strip()
            instead = f"name it otherwise, such as {own}, or leave it out" if own else "leave it out"
            yield Finding(("tags", key), message, instead, on_key=True)
