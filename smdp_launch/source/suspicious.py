"""Files that probably contain secrets: passwords, keys, and settings of other tools with credentials."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from smdp_launch.secret_forms import known_secrets

_NAMES = {
    ".netrc": "passwords",
    "_netrc": "passwords",
    ".git-credentials": "passwords",
    ".pgpass": "passwords",
    ".htpasswd": "passwords",
    ".pypirc": "a package index's password",
    "credentials.json": "credentials",
    "kaggle.json": "an API key",
    ".boto": "credentials",
}
_FOLDERS = {
    ".aws": "AWS credentials",
    ".ssh": "keys",
    ".gnupg": "keys",
    ".kube": "a cluster's credentials",
    ".docker": "a registry's credentials",
    ".azure": "credentials",
    ".gcloud": "credentials",
}
_SAMPLES = {"example", "sample", "template", "dist"}
_KEY_NAME = re.compile(r"id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.+\.(p12|pfx|ppk|jks)")
_KEY_SUFFIXES = {".pem", ".key"}

_REQUIREMENTS = re.compile(r".*(requirements|constraints).*\.txt")

# Bytes. A key is at the beginning of its file; a file of certificates may be long.
_HEAD = 64 << 10


class Suspicious(NamedTuple):
    """A file that probably contains a secret; ``what`` is the kind of secret.

    Args:
        for_pip: pip needs the file.
    """

    name: str
    what: str
    for_pip: bool = False


def suspicion(name: str, path: Path) -> Suspicious | None:
    """The secret that the file ``name`` of the source folder probably contains; None if there is none."""
    parts = PurePosixPath(name.lower()).parts
    folder = next((_FOLDERS[one] for one in parts[:-1] if one in _FOLDERS), None)
    what = folder or _NAMES.get(parts[-1]) or _by_form(parts[-1], path)
    if what is None and _REQUIREMENTS.fullmatch(parts[-1]):
        found = next(known_secrets(_head(path).decode(errors="replace")), None)
        return Suspicious(name, found[0], for_pip=True) if found is not None else None
    return None if what is None else Suspicious(name, what)


def _by_form(name: str, path: Path) -> str | None:
    if name == ".env" or (name.startswith(".env.") and name.rsplit(".", 1)[1] not in _SAMPLES):
        return "environment variables, often secret"
    if _KEY_NAME.fullmatch(name) or (PurePosixPath(name).suffix in _KEY_SUFFIXES and not _is_public(path)):
        return "a private key"
    return None


def _is_public(path: Path) -> bool:
    """Whether a PEM file contains only certificates or public keys."""
    head = _head(path)
    return b"-----BEGIN " in head and b"PRIVATE KEY-----" not in head


def _head(path: Path) -> bytes:
    """The first bytes; none if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""
