"""The values of a job file, collected from a call of the SDK."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.catalog import placeholders
from smdp_launch.catalog.placeholders import of_hyperparameter
from smdp_launch.draft.sdk_call.values import LOST, Made, Text, Unknown
from smdp_launch.secret_forms import known_secrets, named_secrets, says_secret, without_forms

#: A field of the job file, such as ``("compute", "max_run")``.
At = tuple[str, ...]

#: Fields that every job file needs. The user writes those that cannot be read.
_REQUIRED = (("script", "entry"), ("compute", "instance_type"), ("compute", "instance_count"))
#: Fields whose 0 in the SDK means that they are off.
_OFF = (("compute", "keep_alive"), ("compute", "retries"))
#: What a job file and a note say in place of a secret.
LEFT_OUT = "a secret; let the script read it from AWS Secrets Manager"
_OF_AWS = ("pytorch", "tensorflow")
_ROLE = re.compile(r"arn:aws[a-z\-]*:iam::\d{12}:role/[\w+=,.@\-/]+")
_REGISTRY = re.compile(r"([\w-]+)\.dkr\.ecr\.([\w-]+)\.(.+)")
_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\n]*)?")


@dataclass
class SdkJob:
    """Args:
    values: by field, in the order of the job file's sections where it matters.
    comments: a comment for a field's line.
    notes: sentences for the user, about what the job file does not take over.
    left_out: fields that the job file does not have, with the comment in their place.
    unread: the expressions of required fields that cannot be read from the file.
    retrieved: the call of ``image_uris.retrieve`` for one of AWS's images, which the job file does not name.
    """

    values: dict[At, Any] = field(default_factory=dict)
    comments: dict[At, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: dict[At, str] = field(default_factory=dict)
    unread: dict[At, str] = field(default_factory=dict)
    retrieved: Made | None = None

    @property
    def to_fill_in(self) -> list[str]:
        """The fields whose comment says so."""
        comments = (*self.comments.items(), *self.left_out.items())
        return [".".join(at) for at, text in comments if text.startswith("fill in")]

    def put(self, at: At, value: Any) -> None:
        """Set a field; nothing for None. An unknown value is left out, and noted."""
        if not is_known(value) and at in _REQUIRED:
            self.unread[at] = source_of(value)
        elif not is_known(value):
            self.not_set(at, value)
        elif value is not None:
            self.values[at] = value

    def not_set(self, at: At, value: Any) -> None:
        self.notes.append(f"{'.'.join(at)} is not set: `{source_of(value)}` cannot be read from the file")

    def is_on(self, at: At, value: Any) -> bool:
        """Whether a switch is on; one that is not known is off, and noted."""
        if value is not None and not isinstance(value, bool):
            self.not_set(at, value)
        return value is True

    def put_number(self, at: At, value: Any) -> None:
        if value == 0 and at in _OFF:
            return
        self.put(at, int(value) if isinstance(value, float) and value.is_integer() else value)

    def place(self, at: At, value: Any, default: str) -> None:
        """Set a location in S3. What is unknown in it becomes a placeholder."""
        known = _location(value)
        self.values[at] = known or f"{placeholders.BUCKET}/{default}"
        if known is None or known.startswith(placeholders.BUCKET):
            self.comments[at] = "fill in" if value is None else f"fill in; {source_of(value)}"

    def checkpoints(self, value: Any) -> None:
        """Set the location of the checkpoints, which the SDK sends unchanged. A path with an unknown part may be one of
        each job."""
        at = ("checkpoint", "s3")
        self.place(at, value, "checkpoints")
        if value is None:
            return
        if _location(value) is not None and _has_known_path(value):
            self.values["checkpoint", "shared"] = True
            self.comments["checkpoint", "shared"] = "as the SDK: without the job's name"
        else:
            self.notes.append("checkpoint.s3: the job adds its name; `shared: true` uses the location as it is")

    def image(self, value: Any) -> None:
        """Set the image; nothing for None and for AWS's images. What is unknown in its URI becomes a placeholder."""
        if isinstance(value, Made) and value.get("framework", 0) in _OF_AWS and isinstance(value.get("version"), str):
            self.retrieved = value
            value.read.update((*value.named, *range(len(value.given))))
            return
        if value is not None and not isinstance(value, str):
            self.comments["image",] = f"fill in; {source_of(value)}"
        if value is not None:
            self.values["image",] = value if isinstance(value, str) else _image(value)

    def role(self, value: Any) -> None:
        if isinstance(value, str) and _ROLE.fullmatch(value):
            self.values["role",] = value
            return
        self.values["role",] = placeholders.ROLE
        self.comments["role",] = "fill in" if value is None else f"fill in; {source_of(value)}"

    def region(self, value: str | None) -> None:
        self.values["region",] = value or placeholders.REGION
        if value in (None, placeholders.REGION):
            self.comments["region",] = "fill in"

    def hyperparameters(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            self.not_set(("script", "hyperparameters"), value)  # such as the path of a file with them
            return
        for name, one in value.items():
            at = ("script", "hyperparameters", str(name))
            if self.leaves_out(at, one):
                continue
            if name == "sagemaker_program" and isinstance(one, str):
                self.values.setdefault(("script", "entry"), one.strip('"'))  # some scripts pass it as JSON
            elif name == "sagemaker_submit_directory":
                continue  # the source folder
            elif str(name).startswith("sagemaker_"):
                self.notes.append(f"{name} is not taken over: the launcher sets the toolkit's hyperparameters")
            elif is_known(one):
                self.values[at] = one
            else:
                self.values[at] = of_hyperparameter(str(name))
                self.comments[at] = f"fill in; {source_of(one)}"

    def leaves_out(self, at: At, value: Any) -> bool:
        """Whether the value is a secret, or stands for entries that are not in the file; notes this."""
        section, name = ".".join(at[:-1]), at[-1]
        if name.startswith(LOST):
            self.notes.append(f"{section} may lack entries: `{name}` cannot be read from the file")
            return True
        if not _is_secret(name, value):
            return False
        self.left_out[at] = LEFT_OUT
        self.notes.append(f"{section}.{name} is not set: {LEFT_OUT}")
        return True


def _is_secret(name: str, value: Any) -> bool:
    if isinstance(value, Unknown | Text):
        names = re.findall(r"[\w-]+", value.source)
        return says_secret(name) or any(map(says_secret, names)) or any(known_secrets(value.source))
    return bool(named_secrets(value, name)) or (isinstance(value, str) and any(known_secrets(value)))


def is_known(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(is_known, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(map(is_known, value))
    return not isinstance(value, Unknown | Text | Made)


def known_texts(value: Any) -> list[str] | None:
    """A list of texts that are all known; None for anything else."""
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return value
    return None


def shortened(text: str, width: int = 80) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def source_of(value: Any) -> str:
    """The expression of an unknown value, with stars in place of secrets."""
    return without_forms(_source_of(value))


def _source_of(value: Any) -> str:
    if isinstance(value, Unknown | Text):
        return value.source
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {_source_of(one)}' for name, one in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_source_of, value))}]"
    return f"{value.path}(...)" if isinstance(value, Made) else repr(value)


def _has_known_path(location: str | Text) -> bool:
    """Whether only the bucket may be unknown."""
    before = ""
    for part in location.parts if isinstance(location, Text) else ():
        if not isinstance(part, str) and "/" in before.removeprefix("s3://"):
            return False
        before += part if isinstance(part, str) else "bucket"
    return True


def _location(value: Any) -> str | None:
    """The location in S3, in ``your-bucket`` if a part is not known; None if it is no location."""
    if isinstance(value, str):
        return value if _S3.fullmatch(value) else None
    if not isinstance(value, Text):
        return None
    text = _filled(value)
    if not text.startswith("s3://"):
        return None
    # Only the placeholder of a bucket is found before a launch.
    key = text.removeprefix("s3://").partition("/")[2]
    location = f"{placeholders.BUCKET}/{key}" if key else placeholders.BUCKET
    return location if _S3.fullmatch(location) else None


def _image(value: Any) -> str:
    """The URI of an image that is not known, with its known parts."""
    registry, _, image = _filled(value).partition("/") if isinstance(value, Text) else ("", "", "")
    parts = _REGISTRY.fullmatch(registry)
    account, region, domain = parts.groups() if parts is not None else ("", "", "")
    if not image or region.startswith("your-") or not region:
        region = placeholders.REGION
    if not account.isdecimal() or region != placeholders.REGION:
        account = placeholders.ACCOUNT
    domain = domain if domain.startswith("amazonaws.") else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{domain}/{image or 'your-image:your-tag'}"


def _filled(value: Text) -> str:
    """The text with a name that begins with ``your-`` for each unknown part."""
    return "".join(one if isinstance(one, str) else f"your-{_plain(one.source)}" for one in value.parts)


def _plain(source: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", source.lower()).strip("-")[:30] or "part"
