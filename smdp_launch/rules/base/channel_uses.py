"""The channels that the script reads."""

from __future__ import annotations

from collections.abc import Mapping

from smdp_launch.rules.base.facts import Facts

#: Variables from which a script can find all channels without naming them.
_ALL_CHANNELS = frozenset({"SM_CHANNELS", "SM_INPUT_DIR", "SM_INPUT_DATA_CONFIG", "SM_TRAINING_ENV"})


def unread_channels(facts: Facts, channels: Mapping[str, str]) -> list[str]:
    """The job's channels that the script does not read; empty if it may find them in another way.

    Args:
        channels: their names by the name in upper case.
    """
    values = " ".join(map(str, [*facts.spec.script.hyperparameters.values(), *facts.spec.environment.values()]))
    mentioned = {one.name for script in facts.scripts.values() for one in (*script.environment, *script.literal_paths)}
    roots = any(one.rstrip("/") in ("/opt/ml", "/opt/ml/input", "/opt/ml/input/data") for one in mentioned)
    if roots or mentioned & _ALL_CHANNELS or "/opt/ml/input" in values or not facts.program.is_understood:
        return []
    read = {one.channel.upper() for _, file in facts.program.files for one in file.channels}
    return [name for upper, name in channels.items() if upper not in read]
