"""JUnit XML, which nearly all continuous integration servers show as test results."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from smdp_launch.checking.job import CheckedJob
from smdp_launch.cli.render.review.places import Entry, entries, relative
from smdp_launch.diagnostics import Severity, shortened

# What XML 1.0 cannot contain, not even escaped (its production [2] Char).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(jobs: Sequence[CheckedJob]) -> str:
    """A suite for each job file with a case for each diagnostic; errors are failures. A job file without errors has a
    further case that passes, so that no suite is empty."""
    root = ET.Element("testsuites", name="smdp-launch validate")
    for job in jobs:
        root.append(_suite(job))
    for count in ("tests", "failures"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="us-ascii")  # readable in each encoding of standard output
    return text.decode("ascii")


def _suite(job: CheckedJob) -> ET.Element:
    name = _text(relative(str(job.path)))
    suite = ET.Element("testsuite", name=name)
    found = entries([job])
    for one in found:
        suite.append(_case(one, name))
    errors = sum(one.diagnostic.severity is Severity.ERROR for one in found)
    if not errors:
        ET.SubElement(suite, "testcase", classname=name, name="valid", time="0")
    suite.attrib |= {"tests": str(len(suite)), "failures": str(errors), "errors": "0", "skipped": "0", "time": "0"}
    return suite


def _case(one: Entry, suite: str) -> ET.Element:
    place = f"{relative(one.span.file)}:{one.span.line}:{one.span.column}"
    case = ET.Element(
        "testcase",
        classname=suite,
        name=_text(f"{one.diagnostic.code} {place}"),
        file=_text(relative(one.span.file)),
        line=str(one.span.line),
        time="0",
    )
    text = _text(f"{place}: {one.text}")
    if one.diagnostic.severity is Severity.ERROR:
        failure = ET.SubElement(
            case, "failure", message=_text(shortened(one.diagnostic.message)), type=one.diagnostic.code
        )
        failure.text = text
    else:
        ET.SubElement(case, "system-out").text = f"{one.diagnostic.severity.value}: {text}"
    return case


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
