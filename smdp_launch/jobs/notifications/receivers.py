"""Sends a message to a command, a webhook or an SNS topic. Each has a deadline, and no error message has an address."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from smdp_launch.errors import Refused, SmdpError
from smdp_launch.jobs.notifications.message import Message
from smdp_launch.jobs.service.clients import connect_service
from smdp_launch.jobs.service.retry import as_service_problem
from smdp_launch.plain_text import without_controls
from smdp_launch.systems import IS_WINDOWS

#: Seconds for the command, and for one try of a webhook.
_COMMAND_TIMEOUT, _WEBHOOK_TIMEOUT = 30.0, 5.0
#: Seconds before the second and the third try of a webhook.
_PAUSES = (1.0, 3.0)
_LONGEST_SUBJECT = 100  # characters, SNS's limit
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class NotSent(Exception):
    """The message says why, without the address."""


def require_webhook(variable: str, environ: Mapping[str, str] = os.environ) -> str:
    """The address that the variable has.

    Raises:
        Refused: the variable is not set, or has no http(s) address.
    """
    address = environ.get(variable, "").strip()
    if not address:
        raise Refused(f"notify.webhook names the variable {variable}, which is not set: export it, or remove the key")
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid or any(one.isspace() or not one.isprintable() for one in address):
        raise Refused(f"notify.webhook names the variable {variable}, whose value is no http or https address")
    return address


def to_command(command: str, folder: Path, message: Message) -> None:
    """Run the command in ``folder``, with the message as JSON on its standard input.

    Raises:
        NotSent: it cannot be started, takes longer than 30 s, or fails.
    """
    try:
        running = subprocess.Popen(
            shlex.split(command),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise NotSent(f"the command cannot be started: {getattr(error, 'strerror', None) or error}") from error
    try:
        _, errors = running.communicate(json.dumps(message.to_json()).encode(), timeout=_COMMAND_TIMEOUT)
    except subprocess.TimeoutExpired:
        _kill(running)
        raise NotSent(f"the command took longer than {_COMMAND_TIMEOUT:g} s and was ended") from None
    except BaseException:
        _kill(running)
        raise
    if running.returncode != 0:
        last = without_controls(errors.decode(errors="replace")).strip().splitlines()[-1:]
        raise NotSent(f"the command exited with {running.returncode}" + "".join(f": {one[:200]}" for one in last))


def _kill(running: subprocess.Popen[bytes]) -> None:
    """End the command with the processes that it has started."""
    if IS_WINDOWS:
        running.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    if running.stderr is not None:
        running.stderr.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the message to another address than the user's."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def to_webhook(address: str, message: Message, sleep: Callable[[float], object] = time.sleep) -> None:
    """Post the message as JSON. A temporary error is retried twice.

    Raises:
        NotSent: the receiver refuses it, or does not answer.
    """
    host = urlsplit(address).hostname
    opener = urllib.request.build_opener(_NoRedirect)
    body = json.dumps(message.to_json()).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "smdp-launch"}
    for pause in (*_PAUSES, None):
        # `require_webhook` allows http and https only.
        request = urllib.request.Request(address, body, headers, method="POST")  # noqa: S310
        try:
            with opener.open(request, timeout=_WEBHOOK_TIMEOUT):
                return
        except urllib.error.HTTPError as error:
            error.close()
            reason, is_temporary = f"{host} answered with status {error.code}", error.code in _RETRIED
        except TimeoutError:
            reason, is_temporary = f"{host} did not answer within {_WEBHOOK_TIMEOUT:g} s", True
        except urllib.error.URLError as error:
            why = error.reason.strerror if isinstance(error.reason, OSError) else None
            reason, is_temporary = f"{host} cannot be reached" + (f": {why}" if why else ""), True
        except (OSError, http.client.HTTPException) as error:
            # The text of the error may have the address.
            reason, is_temporary = f"{host} gave no valid answer ({type(error).__name__})", True
        if pause is None or not is_temporary:
            raise NotSent(f"the webhook failed: {reason}")
        sleep(pause)


def to_sns(topic: str, message: Message) -> None:
    """Publish the message as JSON, with its text as the subject.

    Raises:
        NotSent: there are no credentials, or SNS refuses it or does not answer.
    """
    subject = "".join(one if " " <= one <= "~" else "?" for one in message.text)[:_LONGEST_SUBJECT]
    body = json.dumps(message.to_json())
    try:
        client = connect_service("sns", topic.split(":")[3])
        with as_service_problem("SNS refused the message"):
            client.publish(TopicArn=topic, Subject=subject, Message=body)
    except SmdpError as error:
        raise NotSent(str(error)) from error
