"""The check of SageMaker's limits: botocore accepts what it accepts, and it reports every injected violation."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import botocore
import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.catalog.limits import Shape, compiled, documented_limit, known_instance_types, request_shape, shape
from smdp_launch.request.limits import Path, Violation, check_key, check_value, walk
from tests.conftest import ROOT
from tests.support.properties import examples

TOOL = ROOT / "tools" / "distill_limits.py"
FILE = ROOT / "smdp_launch" / "catalog" / "dated" / "limits.json"
INPUT = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker").operation_model(
    "CreateTrainingJob"
)

NAMED = json.loads(FILE.read_text())["botocore"]

#: Another version of botocore has other limits. tools/distill_limits.py prints the differences, and the file passes.
same_botocore = pytest.mark.skipif(
    botocore.__version__ != NAMED, reason=f"the limits are of botocore {NAMED}, {botocore.__version__} is installed"
)

#: A valid value for each shape of which a repeated letter, or the least number, is none.
FITTING: dict[str, Any] = {
    "ProfilingIntervalInMilliseconds": 500,
    "S3Uri": "s3://bucket/key",
    "FileSystemId": "fs-0123456789abcdef0",
    "RoleArn": "arn:aws:iam::123456789012:role/training",
    "TrainingPlanArn": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan",
    "TrainingRepositoryCredentialsProviderArn": "arn:aws:lambda:us-east-1:123456789012:function:f",
    "HubDataSetArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/hub/DataSet/set/1.0.0",
    "ServerlessJobBaseModelArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/hub/Model/model/1.0.0",
    "SequenceLength": "4K",
    "MlFlowResourceArn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/server",
    "ModelPackageGroupArn": "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/group",
    "ModelPackageArn": "arn:aws:sagemaker:us-east-1:123456789012:model-package/group/1",
}


def good(of: Shape) -> Any:
    """A value with every field of the shape."""
    if of.kind == "structure":
        return {name: good(shape(one)) for name, one in of.members.items()}
    if of.kind == "list":
        return [good(shape(str(of.element)))]
    if of.kind == "map":
        return {good(shape(str(of.key))): good(shape(str(of.value)))}
    if of.kind == "boolean":
        return True
    if of.kind == "string":
        return of.enum[0] if of.enum else FITTING.get(of.name, "a" * max(1, of.minimum or 0))
    return FITTING.get(of.name, max(1, of.minimum or 0))


GOOD = good(request_shape("CreateTrainingJob"))


def places(of: Shape, value: Any, path: Path = ()) -> Iterator[tuple[Path, Shape]]:
    """Every place of ``value``, with its shape."""
    yield path, of
    if of.kind == "structure":
        for name, one in of.members.items():
            yield from places(shape(one), value[name], (*path, name))
    elif of.kind == "list":
        yield from places(shape(str(of.element)), value[0], (*path, 0))
    elif of.kind == "map":
        for name, one in value.items():
            yield from places(shape(str(of.value)), one, (*path, name))


PLACES = list(places(request_shape("CreateTrainingJob"), GOOD))


def put(path: Path, value: Any) -> Any:
    """The good request with ``value`` at ``path``."""
    changed = copy.deepcopy(GOOD)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def at(path: Path) -> Any:
    inner: Any = GOOD
    for step in path:
        inner = inner[step]
    return inner


def accepted_by_botocore(request: Any) -> bool:
    return not ParamValidator().validate(request, INPUT.input_shape).has_errors()


def paths_and_kinds(found: Iterator[Violation]) -> list[tuple[Path, str]]:
    return [(one.path, one.kind) for one in found]


@same_botocore
def test_request_with_every_field_passes() -> None:
    assert list(walk(GOOD)) == []
    assert accepted_by_botocore(GOOD)
    assert len(PLACES) > 150


def bounds(path: Path, of: Shape) -> tuple[int | None, int | None]:
    documented = documented_limit(".".join("*" if isinstance(step, int) else step for step in path))
    low = of.minimum if documented is None or documented.minimum is None else documented.minimum
    high = of.maximum if documented is None or documented.maximum is None else documented.maximum
    return low, high


def too_small(path: Path, of: Shape) -> Any:
    low, _ = bounds(path, of)
    if low is None or (low == 0 and of.kind not in ("integer", "long")):
        return None
    return {"string": "a" * (low - 1), "list": [], "map": {}}.get(of.kind, low - 1)


def too_large(path: Path, of: Shape) -> Any:
    _, high = bounds(path, of)
    if high is None:
        return {"integer": 2**31, "long": 2**63}.get(of.kind)
    if of.kind == "map":
        return {f"name{index}": good(shape(str(of.value))) for index in range(high + 1)}
    return {"string": "a" * (high + 1), "list": at(path) * (high + 1)}.get(of.kind, high + 1)


def unmatched(_: Path, of: Shape) -> Any:
    """A text of an allowed length that does not match the pattern."""
    if of.pattern is None:
        return None
    length = max(2, of.minimum or 0)
    texts = ("\n" * length, "*" * length, "\u2665" * length)
    return next((one for one in texts if not compiled(of.pattern).fullmatch(one)), None)


def unlisted(_: Path, of: Shape) -> Any:
    return f"{of.enum[0]}x" if of.enum else None


def mistyped(_: Path, of: Shape) -> Any:
    return "text" if of.kind != "string" else 7


PLANTS: dict[str, Callable[[Path, Shape], Any]] = {
    "min": too_small,
    "max": too_large,
    "pattern": unmatched,
    "enum": unlisted,
    "type": mistyped,
}


@pytest.mark.parametrize("kind", PLANTS)
def test_every_injected_violation_is_reported_only_at_its_field(kind: str) -> None:
    planted = 0
    for path, of in PLACES[1:]:
        value = PLANTS[kind](path, of)
        if value is None:
            continue
        planted += 1
        assert paths_and_kinds(walk(put(path, value))) == [(path, kind)], path
        assert paths_and_kinds(check_value(path, value)) == [(path, kind)], path
    assert planted >= {"min": 40, "max": 100, "pattern": 60, "enum": 15, "type": 150}[kind]


def test_every_missing_field_is_reported() -> None:
    planted = 0
    for path, of in PLACES:
        for name in of.required:
            broken = copy.deepcopy(GOOD)
            inner = broken
            for step in path:
                inner = inner[step]
            del inner[name]
            assert [(one.path, one.kind, one.limit) for one in walk(broken)] == [(path, "required", name)]
            planted += 1
    assert planted >= 30


def test_unknown_field_is_reported_with_suggestion() -> None:
    for path, of in PLACES:
        if of.kind == "structure" and path:
            (found,) = walk(put((*path, "Bananas"), 1))
            assert (found.path, found.kind) == ((*path, "Bananas"), "unknown")
    (found,) = walk({**GOOD, "EnableManagedSpotTrainin": True})
    assert found.help == "did you mean EnableManagedSpotTraining?"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("TrainingJobName",), "a" * 64, "64 characters, at most 63 allowed"),
        (("TrainingJobName",), "my_job", "must be made of letters, digits and inner hyphens"),
        (("HyperParameters", "*"), "x" * 2501, "2501 characters, at most 2500 allowed"),
        (("HyperParameters", "lr"), "1\n2", "must be one line of text"),
        (("Environment", "*"), 1, "must be text, not a whole number"),
        (("ResourceConfig", "InstanceCount"), 0, "0, at least 1 required"),
        (("ResourceConfig", "InstanceCount"), True, "must be a whole number, not true or false"),
        (("ResourceConfig", "VolumeSizeInGB"), 100000, "100000, at most 16384 allowed"),
        (("StoppingCondition", "MaxRuntimeInSeconds"), 60 * 86400, "5184000, at most 2419200 allowed"),
        (("AlgorithmSpecification", "TrainingInputMode"), "Fast", "not one of Pipe, File, FastFile"),
        (("InputDataConfig", 3, "DataSource", "FileSystemDataSource", "DirectoryPath"), "/" * 4097, "4097 char"),
        (("OutputDataConfig", "S3OutputPath"), "/tmp", "must be s3://BUCKET/KEY or https://HOST/PATH"),
        (("VpcConfig", "Subnets"), [], "0 entries, at least 1 required"),
        (("RoleArn",), "arn:aws:iam::1:role/xxx", "must be arn:aws:iam::ACCOUNT:role/NAME"),
        (("RoleArn",), "arn:aws:iam::\u0661" + "1" * 11 + ":role/x", "must be arn:aws:iam::ACCOUNT:role/NAME"),
        (("Tags", 0, "Key"), "caf\u00e9 + \u00a0-", ""),
        (("Tags", 0, "Key"), "a\u2028\u3000\u0661", ""),
        (("Tags", 0, "Key"), "a#b", "must be made of letters"),
        (("Tags", 0, "Value"), "a\nb", "must be made of letters"),
        (("Tags", 0, "Value"), "a\u2028\u0085", "must be made of letters"),
        (("Tags",), None, "must be a list, not nothing"),
    ],
)
def test_single_value_is_checked_with_its_field(path: Path, value: Any, message: str) -> None:
    found = [one.message for one in check_value(path, value)]
    assert len(found) == (1 if message else 0)
    assert all(one.startswith(message) for one in found)


def test_map_keys_are_checked() -> None:
    (found,) = check_key(("Environment",), "1 A!")
    assert (found.path, found.kind) == (("Environment", "1 A!"), "pattern")
    assert found.message == "the name: must be made of letters, digits and underscores, not a digit first"
    assert paths_and_kinds(walk({**GOOD, "HyperParameters": {"k" * 257: "v"}})) == [
        (("HyperParameters", "k" * 257), "max")
    ]


def test_misspelt_instance_type_gives_suggestion() -> None:
    (found,) = check_value(("ResourceConfig", "InstanceType"), "ml.p4d.24xlarg")
    assert found.help == "did you mean ml.p4d.24xlarge?"
    assert found.message == f"not one of the {len(known_instance_types())} known values"


@pytest.mark.parametrize("path", [("Nothing",), ("InputDataConfig", "name"), ("RoleArn", "x"), ("Tags", 0, "Nme")])
def test_path_that_no_request_has_is_refused(path: Path) -> None:
    with pytest.raises(KeyError):
        list(check_value(path, "x"))


def test_messages_never_contain_text_of_the_request() -> None:
    secret = "hunter2" * 400 + "\n"
    for path, of in PLACES[1:]:
        if of.kind in ("string", "structure", "list", "integer"):
            assert all("hunter2" not in one.message + one.help for one in walk(put(path, secret)))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=30),
    st.binary(max_size=5),
    st.sampled_from(["", "a" * 64, "a" * 300, "s3://b/k", "\n", "ml.p4d.24xlarge", "File", ()]),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.one_of(st.text(max_size=5), st.integers(), st.none()), st.text(max_size=3), max_size=3),
)


@same_botocore
@examples(600)
@given(st.lists(st.tuples(st.sampled_from(PLACES[1:]), ODD, st.booleans()), min_size=1, max_size=4))
def test_botocore_accepts_what_the_walk_accepts(mutations: list[tuple[tuple[Path, Shape], Any, bool]]) -> None:
    request = copy.deepcopy(GOOD)
    for (path, _), value, delete in mutations:
        inner: Any = request
        try:
            for step in path[:-1]:
                inner = inner[step]
            if delete:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier mutation removed the place
    if not list(walk(request)):
        assert accepted_by_botocore(request)


def test_translated_classes_equal_those_of_java() -> None:
    """Compare all characters by category: tag names may contain letters, numbers and separators."""
    pattern = compiled(str(shape("TagKey").pattern))
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        expected = unicodedata.category(char)[0] in "LNZ" or char in "_.:/=+-@"
        assert bool(pattern.fullmatch(char)) == expected, f"U+{code:04X}"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False)


def test_limits_file_matches_its_botocore_version() -> None:
    ran = run("--check")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if botocore.__version__ == NAMED:
        assert ran.stdout == f"the file matches botocore {NAMED}\n"
    else:
        print(ran.stdout)  # for information; not an error


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"ml.p4d.24xlarge", ', "", "enum of TrainingInstanceType ml.p4d.24xlarge: added"),
        (
            '"ml.p4d.24xlarge", ',
            '"ml.p4d.24xlarge", "ml.p9.xlarge", ',
            "enum of TrainingInstanceType ml.p9.xlarge: removed",
        ),
        ('"max": 63', '"max": 62', "max of TrainingJobName: 62 is now 63"),
        ('"RoleArn": "RoleArn", ', "", "member of CreateTrainingJobRequest RoleArn: added"),
        ('"S3OutputPath": "S3Uri"', '"S3OutputPath": "KmsKeyId"', "S3OutputPath: KmsKeyId is now S3Uri"),
    ],
)
def test_stale_limits_file_fails_only_for_the_same_botocore(tmp_path: Any, old: str, new: str, line: str) -> None:
    file = tmp_path / "limits.json"
    text = re.sub(r'"botocore": "[^"]*"', f'"botocore": "{botocore.__version__}"', FILE.read_text())
    assert old in text
    file.write_text(text.replace(old, new))
    ran = run("--check", "--file", str(file))
    assert ran.returncode == 1
    assert line in ran.stdout
    file.write_text(file.read_text().replace(f'"botocore": "{botocore.__version__}"', '"botocore": "1.0.0"'))
    ran = run("--check", "--file", str(file))
    assert ran.returncode == 0
    assert line in ran.stdout
    assert f"botocore {botocore.__version__} is installed" in ran.stdout
