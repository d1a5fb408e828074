"""Rules about notifications."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.rules.base.facts import Facts, Problem, rule


@rule("SMDP552", "notify.command", "notify.webhook", "notify.sns")
def notifications_have_a_receiver(facts: Facts) -> Iterator[Problem]:
    notify = facts.spec.notify
    if notify is not None and notify.command is None and notify.webhook is None and notify.sns is None:
        message = "nothing is notified: `notify` has no command, webhook or sns"
        yield Problem(("notify",), message, "add one of them, such as `webhook: TEAM_WEBHOOK`, or remove `notify`")


@rule("SMDP553", "notify.command")
def command_of_notifications_can_be_split(facts: Facts) -> Iterator[Problem]:
    import shlex

    notify = facts.spec.notify
    if notify is None or notify.command is None:
        return
    try:
        is_empty = not shlex.split(notify.command)
    except ValueError as error:
        message = f"the command of the notifications cannot be split into words: {str(error).lower()}"
        yield Problem(("notify", "command"), message, "close each quotation mark")
        return
    if is_empty:
        yield Problem(
            ("notify", "command"), "the command of the notifications is empty", "name a program, or remove it"
        )
