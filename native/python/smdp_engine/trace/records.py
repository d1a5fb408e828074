"""Reads flight records: pickles that the engine writes. No code in a pickle is run."""

import io
import pickle
from pathlib import Path
from typing import Any, Dict, Iterable, List

from .errors import TraceError

_SHOWN = 20  # the number of records shown for a rank


class _PlainValues(pickle.Unpickler):
    """Refuses every class: a flight record has none."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names the class {module}.{name}, which a flight record does not have")


def read_records(path: Path) -> Dict[str, Any]:
    """The content of a file ``flight_N``; docs/how-to/slow-runs.md lists its fields.

    Raises:
        TraceError: it cannot be read or is not a flight record.
    """
    try:
        content: Any = _PlainValues(io.BytesIO(path.read_bytes())).load()
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    except Exception as error:  # a damaged pickle can raise any exception
        raise TraceError(f"{path}: not a flight record: {error}") from error
    if not isinstance(content, dict) or "entries" not in content or "smdp" not in content:
        raise TraceError(f"{path}: not a flight record of this engine")
    return content


def describe(paths: Iterable[Path]) -> str:
    """The last operations of each rank as text; unfinished ones with the ranks that they wait for."""
    files: List[Path] = []
    for path in paths:
        files += sorted(path.glob("flight_*")) if path.is_dir() else [path]
    return "\n\n".join(_rank(read_records(file)) for file in files)


def _rank(content: Dict[str, Any]) -> str:
    header = content["smdp"]
    lines = [f"rank {header['rank']} on {header['host']}: {header['reason']}"]
    names = {key: group["desc"] for key, group in content["pg_config"].items()}
    for entry in content["entries"][-_SHOWN:]:
        lines.append(_line(entry, names[entry["process_group"][0]], header["monotonic_ns"]))
        if entry["state"] != "completed" and entry["phase"]:
            waits = ", ".join(f"rank {rank}" for rank in entry["waits_for"])
            lines.append(f"      {entry['phase']}{': ' if waits else ''}{waits}")
    return "\n".join(lines)


def _line(entry: Dict[str, Any], group: str, now_ns: int) -> str:
    age = (now_ns - entry["created_ns"]) / 1e9
    step = f"step {entry['step']} index {entry['index']}" if entry["step"] >= 0 else str(entry["collective_seq_id"])
    what = f"{entry['collective']} {entry['input_sizes'][0][0]} x {entry['dtype']}"
    return f"  {entry['state']:<10}{age:>10.3f} s ago  {group}:{step}  {what}"
