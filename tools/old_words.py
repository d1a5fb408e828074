"""Lists words that this project does not use, with what to write: `old_words.py [PATH ...]`. Exits with 1 for any.

The rules are in CONTRIBUTING.md, "Words". A line that must have such a word (a name from another project, a quotation)
stands in `ALLOWED`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

#: A pattern, and what to write. Patterns match names too: `_` separates words, as a capital does.
WORDS = {
    r"tells?|told|telling|untold": "show, report, print, say",
    r"(?:go|goes|going|gone|went)[ _]on": "continue, resume",
    r"mend(?:s|ed|ing)?": "fix",
    r"strike[sr]?|strikers|striking|struck": "inject, fault injector",
    r"(?:come|comes|came|coming)[ _]through": "pass, survive",
    r"(?:stand|stands|stood|standing)[ _]still": "hang, be paused",
    r"honou?r(?:s|ed|ing)?": "apply, simulate",
    r"travel(?:s|led|ling)?": "upload, send",
    r"dearest": "most expensive",
    r"whoever|nobody|somebody|anybody": "name it: the user, the client, the rank",
    r"patience": "retry policy, time limit",
    r"hearsay": "suspicion report",
    r"greeters?": "handshaker",
    r"strangers?": "unauthenticated client",
    r"mistakes?": "error",
    r"slips?": "typing error",
    r"findings?": "diagnostic",
    r"(?:say|says|said)[ _]otherwise": "override",
    r"(?:end|ends|ended)[ _]well": "exit successfully",
    r"bury|buried|put[ _]to[ _]rest": "finalize",
    r"brain": "BFloat16",
    r"hopes?|hopeless": "retries exhausted",
    r"rhythm": "interval",
    r"(?:ask|asks|asked|asking)[ _]again": "retry",
    r"done[ _]again": "repeated",
}
_FOLDERS = ("smdp_launch", "containers", "native", "docs", "templates", "tools", "tests")
_FILES = ("README.md", "CONTRIBUTING.md", "Makefile", "conftest.py", "pyproject.toml", "mkdocs.yml")
#: Files that are data from elsewhere, or list old words on purpose.
_NOT_READ = ("native/fuzz/corpus/", "tools/old_words.py", "smdp_launch/catalog/dated/", "CHANGELOG.md")
#: (end of a path, a part of the line).
ALLOWED: tuple[tuple[str, str], ...] = (
    (".py", ".tell()"),  # the position in a file
    (".svg", ";base64,"),  # letters of an image
    ("unpack.py", "def tell("),
    ("job.py", "def tell("),  # the former name of `Job.on_waiting`
    ("job.py", "@tell.setter"),
    ("test_python_api.py", "job.tell"),
    ("fuzzing.md", "finding-"),  # names of corpus files
    ("test_aws_cli_v2_setup.py", "nobody@example.org"),
    ("", "not_honoured"),  # keys of JSON output that keep their names
    ("", '"honoured"'),
    ("", "`honoured`"),
    ("", '"strikes"'),
    ("", "`strikes`"),
)

_EACH = {re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![a-z])", re.IGNORECASE): use for pattern, use in WORDS.items()}
#: Most files have none of them.
_ANY = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(WORDS)})(?![a-z])", re.IGNORECASE)
_COLOUR = re.compile(r"\^\[\[[0-9;]*m")  # as snapshots write it


class Found(NamedTuple):
    path: str
    line: int
    word: str
    use: str
    text: str


def found(paths: list[str]) -> Iterator[Found]:
    """Every old word in the files at or below ``paths``, which are relative to the project's root.

    Files that git ignores are left out; new files that are not added yet are read.
    """
    list_files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *paths]
    listed = subprocess.run(list_files, cwd=ROOT, capture_output=True, text=True, check=True)
    for path in filter(None, listed.stdout.split("\0")):
        if path.startswith(_NOT_READ) or not (ROOT / path).is_file():
            continue
        try:
            whole = (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if _ANY.search(_COLOUR.sub("", whole)) is None:
            continue
        for number, text in enumerate(whole.splitlines(), 1):
            if any(path.endswith(end) and part in text for end, part in ALLOWED):
                continue
            plain = _COLOUR.sub("", text)
            for pattern, use in _EACH.items():
                match = pattern.search(plain)
                if match is not None:
                    yield Found(path, number, match.group(0), use, text.strip())


def main() -> int:
    every = list(found(sys.argv[1:] or [*_FOLDERS, *_FILES]))
    for one in every:
        print(f"{one.path}:{one.line}: {one.word!r}: write {one.use}: {one.text[:100]}")
    print(f"{len(every)} old words")
    return 1 if every else 0


if __name__ == "__main__":
    sys.exit(main())
