"""Secrets are reported also in files with other errors, and are in no output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.diagnostics import diagnostics_text
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.secret_forms import named_secrets, says_secret, starred
from tests.conftest import JOB, Command, write_job

KEY = "-----BEGIN RSA PRIVATE KEY-----\\nMIIEowIBAAKCAQEA1234567890\\n-----END RSA PRIVATE KEY-----"
FORMS = {
    "AKIAIOSFODNN7EXAMPLE": "an AWS access key",
    "ASIAIOSFODNN7EXAMPLE": "an AWS access key",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "a GitHub token",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz": "a GitHub token",
    "glpat-abcdefghij0123456789": "a GitLab token",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH": "a Hugging Face token",
    "sk-proj-abcdefghijklmnopqrstuvwxyz": "an API key",
    "xoxb-123456789012-abcdefghijkl": "a Slack token",
    "local-0123456789abcdef0123456789abcdef01234567": "a Weights & Biases key",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N": "a signed token",
    "postgres://ana:correct-horse@db.example.com/runs": "a password in an address",
}


def diagnostics_of(folder: Path, more: str, **environ: str) -> list[Diagnostic]:
    return list(check_job(write_job(folder, JOB + more), environ=environ).diagnostics)


def everything(found: list[Diagnostic]) -> str:
    spans = " ".join(repr(one.span) for one in found)
    return f"{diagnostics_text(found).plain if found else ''} {json.dumps([one.to_json() for one in found])} {spans}"


@pytest.mark.parametrize(("secret", "what"), FORMS.items(), ids=FORMS.values())
def test_known_secret_forms_are_reported_but_not_shown(tmp_path: Path, secret: str, what: str) -> None:
    (one,) = diagnostics_of(tmp_path, f"environment:\n  SETTING: {secret}\n")
    assert (one.code, one.span and one.span.line) == ("SMDP701", JOB.count("\n") + 2)
    assert what in one.message
    hidden = "correct-horse" if "address" in what else secret
    assert hidden not in everything([one])


def test_private_key_gives_one_error_and_is_not_shown(tmp_path: Path) -> None:
    found = diagnostics_of(tmp_path, f'environment:\n  SETTING: "{KEY}"\n')
    assert [one.code for one in found] == ["SMDP701"]
    assert "MIIE" not in everything(found)


@pytest.mark.parametrize(
    "place", ["tags: {DB_PASSWORD: %s}", "overlay: {Nested: [{apiKey: %s}]}", "nothing: {hfToken: %s}"]
)
def test_secret_names_are_reported_in_every_section(tmp_path: Path, place: str) -> None:
    found = diagnostics_of(tmp_path, f"{place % 'correct-horse-battery'}\n")
    assert "SMDP702" in [one.code for one in found]
    assert "correct-horse" not in everything(found)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "password",
            "DB_PASSWORD",
            "db-passwd",
            "wandb_api_key",
            "WANDB_API_KEY",
            "hfToken",
            "secretKey",
            "auth_token",
        ),
        *("aws_secret_access_key", "privateKey", "credentials", "client_secret", "apikey"),
    ],
)
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert says_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("pad_token", "eos-token", "maskToken", "special_token", "decoder_start_token", "max_tokens", "tokenizer"),
        *("num_tokens", "keyboard", "monkey", "secretary", "token_type", "sort_key", "key", "partition_key"),
    ],
)
def test_other_names_are_not_secrets(name: str) -> None:
    assert not says_secret(name)


@pytest.mark.parametrize("name", ["wandb-key", "WANDB_KEY", "key"])
def test_40_hexadecimal_digits_under_a_name_that_ends_with_key_are_a_secret(tmp_path: Path, name: str) -> None:
    secret = "0123456789abcdef0123456789ABCDEF01234567"
    (one,) = diagnostics_of(tmp_path, f"tags:\n  {name}: {secret}\n")
    assert one.code == "SMDP702"
    assert secret not in everything([one])
    (other,) = diagnostics_of(tmp_path, f"tags: {{{name}: {secret}: no}}\n")
    assert secret not in everything([other])
    assert named_secrets({name: secret}) == {secret}
    assert starred({name: secret}, set()) == {name: "********"}


@pytest.mark.parametrize(
    "entry",
    [
        *("partition_key: user", "sort-key: 0123456789abcdef", f"commit: {'0a' * 20}", f"wandb-key: /{'0a' * 20}"),
        f"wandb-key: {'0a' * 21}",
    ],
)
def test_other_values_under_a_name_that_ends_with_key_are_not_secrets(tmp_path: Path, entry: str) -> None:
    assert diagnostics_of(tmp_path, f"tags: {{{entry}}}\n") == []


@pytest.mark.parametrize(
    "value", ["/run/secrets/db", "arn:aws:secretsmanager:us-east-1:123456789012:secret:db", "short"]
)
def test_paths_arns_and_short_values_are_not_secrets(tmp_path: Path, value: str) -> None:
    assert diagnostics_of(tmp_path, f"environment:\n  DB_PASSWORD: {value}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "environment: {1A: x, DB_PASSWORD: correct-horse-battery}",
        "environment: {DB_PASSWORD: correct-horse-battery, DB_PASSWORD: correct-horse-battery}",
        "environment: [DB_PASSWORD: correct-horse-battery]",
        "unknown: {DB_PASSWORD: correct-horse-battery}",
        "amp: ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789: x",
        "tags: {ghp_abcdefghijklmnopqrstuvwxyz0123456789: x}",
        "environment: {DB_PASSWORD: correct-horse-battery: no}",
        "environment: {DB_PASSWORD: 'correct-horse-battery",
        "environment: {DB_PASSWORD: !vault correct-horse-battery}",
        'environment: {DB_PASSWORD: "correct-horse-\\x62attery"}',
        "engine_options: {custom_mpi_options: 'PASSWORD=correct-horse-battery -x A'}",
    ],
)
def test_other_errors_do_not_show_secrets(tmp_path: Path, line: str) -> None:
    text = everything(diagnostics_of(tmp_path, f"{line}\n"))
    assert "error[" in text
    assert "correct-horse" not in text
    assert "ghp_abcdefgh" not in text


def test_variables_are_reported_by_name(tmp_path: Path) -> None:
    job = JOB.replace("ml.p4d.24xlarge", "${KIND}").replace("instance_count: 2", "instance_count: ${COUNT}")
    (folder := tmp_path / "run-7").mkdir()  # the path holds a variable's value
    path = write_job(folder, job.replace("train.py", "${SCRIPT}") + "environment: {DB_PASSWORD: '${PASSWORD}'}\n")
    environ = {"KIND": "ml.p99.large", "COUNT": "-7", "SCRIPT": "scripts/secret-project.py", "PASSWORD": "x" * 600}
    found = list(check_job(path, environ=environ).diagnostics)
    assert [one.code for one in found] == ["SMDP402", "SMDP301", "SMDP204", "SMDP702"]
    assert {one.span.file for one in found if one.span is not None} == {str(path)}
    text = everything(found).replace(str(folder), "")
    assert [value for value in ("p99", "-7", "secret-project", "xxxx") if value in text] == []
    assert "there is no ${SCRIPT} in" in text
    assert "no instance type ${KIND}" in text


def test_numeric_secret_is_not_shown(tmp_path: Path) -> None:
    found = list(
        check_job(write_job(tmp_path, JOB + "environment: {DB_PASSWORD: 1234567890}\n"), environ={}).diagnostics
    )
    assert found
    assert "1234567890" not in everything(found)


@pytest.mark.parametrize(
    "place",
    [
        "tags: {DB_PASSWORD: %s}",
        "environment: {DB_PASSWORD: %s}",
        "overlay: {Nested: [{apiKey: %s}]}",
        "overlay: {credentials: {user: %s}}",
        "overlay: {apiKey: {values: [{first: %s}]}}",
        "nothing: {hfToken: {value: %s}}",
    ],
)
@pytest.mark.parametrize("secret", ["9081726354", "90817263.54", "correct-horse-battery"])
def test_numbers_and_nested_values_below_secret_names_are_secrets(tmp_path: Path, place: str, secret: str) -> None:
    found = diagnostics_of(tmp_path, f"{place % secret}\n")
    assert "SMDP702" in [one.code for one in found]
    assert secret not in everything(found)


@pytest.mark.parametrize(
    "value",
    [
        {"password": 9081726354},
        {"password": 908172.6354},
        {"credentials": {"user": "ana-the-first", "pin": 9081726354, "hosts": ["first-host", {"second": "host-two"}]}},
        {"outer": [{"apiKey": {"value": "correct-horse-battery"}}]},
        {"pin": {"secret": [[12345678]]}},
    ],
)
def test_numbers_and_nested_values_are_masked(value: dict[str, object]) -> None:
    def leaves(one: object) -> list[str]:
        if isinstance(one, dict | list):
            return [leaf for each in (one.values() if isinstance(one, dict) else one) for leaf in leaves(each)]
        return [str(one)]

    assert named_secrets(value) == set(leaves(value))
    assert set(leaves(starred(value, set()))) == {"********"}
    text = starred({"text": json.dumps(value), "more": [*leaves(value), 5, True]}, named_secrets(value))
    assert not any(leaf in json.dumps(text) for leaf in leaves(value))


def test_numbers_that_are_not_secrets_are_not_masked() -> None:
    value = {"steps": 1234567890, "pad_token": 12345678, "use_password": True, "password": None, "max_tokens": 512}
    assert named_secrets(value) == set()
    assert starred(value, set()) == value


def test_secret_in_flag_is_not_shown(smdp_launch: Command) -> None:
    ran = smdp_launch("validate", "--set", "environment.DB_PASSWORD=correct-horse-battery", "--set", "amp=fp8")
    assert ran.stderr.count("error[") == 2
    assert "correct-horse" not in ran.stdout + ran.stderr


def test_json_output_contains_no_secret(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB + "environment: {DB_PASSWORD: correct-horse-battery}\n")
    for arguments in (["validate", "--json"], ["plan", "--json"], ["plan", "--request"], ["launch", "--local"]):
        ran = smdp_launch(*arguments)
        assert ran.returncode == 3
        assert "correct-horse" not in ran.stdout + ran.stderr
