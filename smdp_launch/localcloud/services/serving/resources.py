"""Models and endpoint configurations: one file each, which the server alone writes.

`resources/KIND/REGION/NAME.json` in the state folder has the request that created the resource, its time and its tags.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.files import read_json, write_json
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.services.tags import of_request


@dataclass(frozen=True)
class Resource:
    name: str
    created: float
    request: dict[str, Any]


@dataclass
class Resources:
    """The resources of one kind. Names are unique within a region.

    Args:
        kind: the word for a resource in messages.
        arn: a resource's ARN, from its name and region.
    """

    root: Path
    kind: str
    arn: Callable[[str, str], str]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, name: str, request: Mapping[str, Any]) -> str:
        """The ARN of the new resource. Raises ServiceError where the name is taken."""
        path = self._path(name)
        tags = of_request(request)
        kept = {key: value for key, value in request.items() if key != "Tags"}
        with self._lock:
            if path.exists():
                raise validation(f'Cannot create already existing {self.kind} "{self._arn(name)}".')
            path.parent.mkdir(parents=True, exist_ok=True)
            # In milliseconds, as on AWS: a client that filters by the time that it got must send the same number.
            write_json(path, {"created": round(time.time(), 3), "request": kept, "tags": tags})
        return self._arn(name)

    def get(self, name: str) -> Resource:
        """Raises ServiceError for an unknown name."""
        record = self._record(name)
        return Resource(name, record["created"], record["request"])

    def delete(self, name: str) -> None:
        with self._lock:
            self._record(name)
            self._path(name).unlink()

    def all(self) -> Iterator[Resource]:
        for path in sorted((self.root / caller.region()).glob("*.json")):
            record = read_json(path)
            if record:  # otherwise it was deleted meanwhile
                yield Resource(path.stem, record["created"], record["request"])

    def tags(self, name: str) -> Mapping[str, str]:
        tags: dict[str, str] = self._record(name)["tags"]
        return tags

    def change_tags(self, name: str, added: Mapping[str, str], removed: Iterable[str]) -> None:
        dropped = set(removed)
        with self._lock:
            record = self._record(name)
            kept = {key: value for key, value in record["tags"].items() if key not in dropped}
            write_json(self._path(name), {**record, "tags": {**kept, **added}})

    def _record(self, name: str) -> dict[str, Any]:
        record: dict[str, Any] | None = read_json(self._path(name))
        if record is None:
            raise self._unknown(name)
        return record

    def _unknown(self, name: str) -> ServiceError:
        return validation(f'Could not find {self.kind} "{self._arn(name)}".')

    def _path(self, name: str) -> Path:
        """Raises ServiceError for text that is no name, as in an ARN of a client."""
        if "/" in name or name in ("", ".", "..") or "\0" in name:
            raise self._unknown(name)
        return self.root / caller.region() / f"{name}.json"

    def _arn(self, name: str) -> str:
        return self.arn(name, caller.region())
