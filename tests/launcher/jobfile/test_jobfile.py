"""Valid job files give specs, and invalid ones give diagnostics."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobfile.load import Loaded, load
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.jobfile.yaml.parser import MAX_BYTES, parse, read
from tests.conftest import JOB


def loaded(text: str) -> tuple[Loaded, list[Diagnostic]]:
    document, found = parse(text, Document("job.yaml", Path()))
    result, more = load(document)
    return result, found + more


def reported(text: str) -> list[tuple[str, int, str]]:
    """Code, line and offending text of each diagnostic."""
    return [(one.code, one.span.line if one.span else 0, one.text) for one in loaded(text)[1]]


def test_a_sound_file_becomes_a_spec_with_defaults() -> None:
    result, found = loaded(JOB)
    assert found == []
    assert isinstance(result.spec, JobSpec)
    assert result.spec.compute.volume_gb == 30
    assert result.spec.channels["train"].mode == "File"
    assert result.spec.script.hyperparameters == {"epochs": 2}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1.10", 1.1),
        ("022", 22),
        ("0o22", 18),
        ("0x1f", 31),
        ("1e-4", 0.0001),
        ("on", "on"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("~", None),
        ("TRUE", True),
        ("9" * 101, "9" * 101),
        ('"7"', "7"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(written: str, value: object) -> None:
    document, found = parse(f"a: {written}", Document("job.yaml", Path()))
    assert found == []
    assert document.data["a"] == value
    assert type(document.data["a"]) is type(value)
    assert document.entries[("a",)].text == written.strip('"')


def test_infinities_and_nan_are_read_and_refused_as_hyperparameters() -> None:
    document, _ = parse("a: -.inf\nb: .nan", Document("job.yaml", Path()))
    assert document.data["a"] == -math.inf
    assert math.isnan(document.data["b"])
    assert reported(JOB.replace("{epochs: 2}", "{epochs: .nan}")) == [("SMDP204", 9, ".nan")]


def test_number_in_a_text_field_needs_quotes() -> None:
    text = JOB.replace('"2.0.1"', "2.10").replace("arn:aws:iam::123456789012:role/training", "012345678901")
    _, found = loaded(text)
    assert [(one.code, one.text, one.help) for one in found] == [
        ("SMDP206", "2.10", 'put quotes around it: "2.10"'),
        ("SMDP206", "012345678901", 'put quotes around it: "012345678901"'),
    ]


def test_misspelt_required_key_gives_one_error() -> None:
    _, found = loaded(JOB.replace("instance_type:", "instance_typ:"))
    assert [(one.code, one.help) for one in found] == [("SMDP201", 'did you mean "instance_type"?')]


def test_unknown_key_without_similar_one_lists_known_keys() -> None:
    _, found = loaded(JOB.replace("max_run: 600", "wxyz: 600"))
    known = "instance_type, instance_count, fallback_types, volume_gb, max_run, max_pending, keep_alive, retries"
    known += ", training_plan, other_groups, group_name"
    assert [one.help for one in found] == [f"known keys: {known}"]


def test_missing_key_is_reported_at_its_section() -> None:
    assert reported(JOB.replace("  entry: train.py\n", "")) == [("SMDP202", 6, "entry")]
    assert reported(JOB.replace("region: us-east-1\n", "")) == [("SMDP202", 1, "region")]


def test_section_that_is_indented_below_another_gives_one_error() -> None:
    output = 'output: {s3: "s3://bucket/output"}'
    (one,) = loaded(JOB.replace(output, f"  {output}"))[1]
    assert (one.code, one.message) == ("SMDP202", "output is indented, so it belongs to channels")
    assert one.help == "remove the spaces before output and dedent its lines"
    assert (one.span.line, one.span.column) == (16, 3) if one.span is not None else False


def test_required_section_in_another_gives_one_error_without_those_of_its_keys() -> None:
    compute = "compute:\n  instance_type: ml.p4d.24xlarge\n  instance_count: 2\n  max_run: 600\n"
    indented = "".join(f"  {line}\n" for line in compute.replace("count: 2", "count: two").splitlines())
    (one,) = loaded(JOB.replace(compute, indented))[1]
    assert (one.code, one.message) == ("SMDP201", "compute is indented, so it belongs to script")


def test_section_within_the_braces_of_another_is_reported_as_such() -> None:
    text = JOB.replace('"s3://bucket/train"}\noutput: {s3: "s3://bucket/output"}', '"s3://bucket/train"}').replace(
        "channels:\n  train: {s3:", "channels: {output: {s3: s3://bucket/output}, train: {s3:", 1
    )
    (one,) = loaded(text.replace('train"}', 'train"}}', 1))[1]
    assert (one.message, one.help) == ("output is inside the braces of channels", "move output out of the braces")


@pytest.mark.parametrize("where", ["tags: {name: x}\n", "environment: {name: x}\n", "framework: {name: pytorch}\n"])
def test_name_of_another_mapping_is_not_taken_for_a_missing_key(where: str) -> None:
    found = loaded(JOB.replace("name: small\n", "") + ("" if where.startswith("framework") else where))[1]
    assert [(one.code, one.message) for one in found] == [("SMDP202", 'the job file needs "name"')]


def test_required_key_outside_its_section_gives_one_error() -> None:
    found = loaded(JOB.replace("  instance_count: 2\n", "") + "instance_count: 2\n")[1]
    assert [(one.code, one.help) for one in found] == [("SMDP201", "the job file has `compute.instance_count` for it")]


TOO_LONG = "it has 1025 characters, and at most 1024 are allowed"
NO_LINE = '"a\nb" is not allowed'


@pytest.mark.parametrize(
    ("before", "after", "message", "help_"),
    [
        ("region: us-east-1", "region: us-west2", "us-west2 is not a region", "did you mean us-west-2?"),
        ("region: us-east-1", "region: US_GOV_WEST_1", "US_GOV_WEST_1 is not a region", "did you mean us-gov-west-1?"),
        ("region: us-east-1", "region: us-west-2a", "us-west-2a is an availability zone", "write us-west-2"),
        ("region: us-east-1", "region: oregon", '"oregon" is not allowed', "write a region such as us-east-1"),
        ('"2.0.1"', "\u201c2.0.1\u201d", "the quotes \u201c \u201d are part of the text", 'use "'),
        ("count: 2", "count: \u201c2\u201d", "the quotes \u201c \u201d are part of the text", "remove them"),
        ("region:", "budget: {max_usd: 0}\nregion:", "0 must be greater than 0", "write more than 0"),
        ("entry: train.py", 'entry: ""', "it is empty", "write at least 1 character"),
        ("source: src", f"source: {1025 * 'x'}", TOO_LONG, "shorten it by 1 character"),
        ('s3: "s3://bucket/train"', 's3: "s3://bucket/train", content_type: "a\\nb"', NO_LINE, "write one line"),
    ],
)
def test_message_says_why_a_value_is_not_allowed(before: str, after: str, message: str, help_: str) -> None:
    (one,) = loaded(JOB.replace(before, after))[1]
    assert (one.message.partition(": ")[2], one.help) == (message, help_)


def test_empty_section_can_be_removed_or_written_as_empty() -> None:
    (one,) = loaded(JOB.replace("hyperparameters: {epochs: 2}", "hyperparameters:"))[1]
    assert one.help == "remove hyperparameters:, or write hyperparameters: {}"


def test_all_duplicate_keys_are_reported_and_the_first_counts() -> None:
    result, found = loaded(JOB + "region: eu-west-1\nrole: x\n")
    assert [(one.code, one.text) for one in found] == [("SMDP103", "region"), ("SMDP103", "role")]
    assert result.spec is not None
    assert result.spec.region == "us-east-1"


@pytest.mark.parametrize(
    ("before", "after", "code", "text"),
    [
        ("instance_count: 2", "instance_count: two", "SMDP203", "two"),
        ("instance_count: 2", "instance_count: 2.5", "SMDP203", "2.5"),
        ("instance_count: 2", "instance_count: true", "SMDP203", "true"),
        ("instance_count: 2", "instance_count: 0", "SMDP204", "0"),
        ("max_run: 600", "max_run: 9999999", "SMDP204", "9999999"),
        ("name: small", "name: my_job!", "SMDP204", "my_job!"),
        ("name: small", "name: " + "x" * 44, "SMDP204", "x" * 44),
        ("name: small", "name: [a]", "SMDP203", ""),
        ("engine: native", "engine: nativ", "SMDP204", "nativ"),
        ("s3://bucket/output", "bucket/output", "SMDP204", "bucket/output"),
        ("schema: 1", "schema: 2", "SMDP205", "2"),
        ("  train: {", "  tr ain: {", "SMDP204", "tr ain"),
        ("{epochs: 2}", "{sagemaker_program: x}", "SMDP204", "sagemaker_program"),
        ("{epochs: 2}", "{1: x}", "SMDP203", "1"),
        ("{epochs: 2}", "3", "SMDP203", "3"),
    ],
)
def test_wrong_value_is_reported_with_its_text(before: str, after: str, code: str, text: str) -> None:
    assert before in JOB
    found = reported(JOB.replace(before, after))
    assert [(one[0], one[2]) for one in found if one[0] == code] == [(code, text)]


def test_section_that_is_not_a_mapping_hides_no_other_error() -> None:
    found = reported(JOB.replace("output: {s3:", "output: 3\nouput2: {s3:").replace("name: small", "name: 5"))
    assert {code for code, _, _ in found} == {"SMDP201", "SMDP203", "SMDP206"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: [1", "SMDP102"),
        ("a: b: c", "SMDP102"),
        ("a:\n\t- b", "SMDP102"),
        ("a: \x00", "SMDP102"),
        ("a: !python/object x", "SMDP102"),
        ("", "SMDP104"),
        ("- a", "SMDP104"),
        ("just text", "SMDP104"),
        ("a: 1\n---\nb: 2\n", "SMDP104"),
        ("x: &a [*a]", "SMDP105"),
        ("[" * 5000, "SMDP105"),
    ],
)
def test_text_that_is_not_a_job_file_is_refused_with_a_code(text: str, code: str) -> None:
    assert code in [one[0] for one in reported(text)]


def test_nested_aliases_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    assert [one[0] for one in reported("\n".join(lines))] == ["SMDP105"]


def test_files_that_cannot_be_read_are_diagnostics(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"schema: 1\nname: caf\xe9\n")
    (tmp_path / "large").write_bytes(b"#" * (MAX_BYTES + 1))
    codes = {name: [one.code for one in read(tmp_path / name)[1]] for name in ("nothing", ".", "latin", "large")}
    assert codes == {"nothing": ["SMDP101"], ".": ["SMDP101"], "latin": ["SMDP101"], "large": ["SMDP105"]}


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + JOB.encode())
    assert read(path)[1] == []


@given(st.text())
def test_any_text_gives_diagnostics_or_a_spec_and_never_an_exception(text: str) -> None:
    result, found = loaded(text)
    assert found or result.spec is not None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda one: (
            st.lists(one)
            | st.dictionaries(st.sampled_from(["schema", "name", "script", "entry", "channels", "local", "x"]), one)
        ),
        max_leaves=15,
    )
)
def test_any_values_give_diagnostics_within_the_file(data: object) -> None:
    import json

    _, found = loaded(json.dumps({"schema": 1, "script": data, "channels": data, "compute": data}))
    assert found
    for one in found:
        assert one.code.startswith("SMDP")
        assert one.span is not None
        assert one.span.line == 1


def place(text: str) -> tuple[str, int, int]:
    (one,) = loaded(text)[1]
    assert one.span is not None
    return one.code, one.span.line, one.span.column


def test_missing_value_is_reported_at_its_key() -> None:
    assert place(JOB.replace("region: us-east-1\n", "region:\n")) == ("SMDP203", 18, 1)


def test_merge_key_is_reported_once() -> None:
    assert place(JOB.replace("  max_run: 600", "  <<: {max_run: 600}")) == ("SMDP102", 13, 3)


def test_schema_version_in_quotes_has_the_wrong_type() -> None:
    assert place(JOB.replace("schema: 1", 'schema: "1"')) == ("SMDP203", 1, 9)


def test_character_that_yaml_forbids_is_reported_at_its_place() -> None:
    assert place(JOB.replace("name: small", "name: s\x00mall")) == ("SMDP102", 2, 8)


def test_bytes_that_are_not_utf8_are_reported_at_their_place(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"schema: 1\nname: \xff\n")
    (one,) = read(tmp_path / "job.yaml")[1]
    assert one.code == "SMDP101"
    assert str(one.span).endswith("job.yaml:2:7")


@pytest.mark.parametrize("name", [".", "..", "..."])
def test_channel_name_of_dots_only_is_refused(name: str) -> None:
    (one,) = loaded(JOB.replace("train: {s3:", f'"{name}": {{s3:').replace("local: {channels: {train: data}}\n", ""))[1]
    assert (one.code, one.help.endswith("not only dots")) == ("SMDP204", True)


@pytest.mark.parametrize("name", ["a", "...a", "-", f"{64 * 'a'}"])
def test_channel_name_of_letters_or_hyphens_is_accepted(name: str) -> None:
    text = JOB.replace("train: {s3:", f'"{name}": {{s3:').replace("local: {channels: {train: data}}\n", "")
    assert loaded(text)[1] == []


def test_value_of_a_variable_may_have_several_lines() -> None:
    result, diagnostics = loaded(JOB + 'environment: {A: "x\\ny"}\n')
    assert diagnostics == []
    assert result.spec.environment == {"A": "x\ny"}
