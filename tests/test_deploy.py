"""The files of deploy/ agree with the command and with each other."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from oscine.cli import app
from oscine.options import options_of
from oscine.options.serve import DEFAULT_PORT, ServeOptions

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
SPARE_S = 10  # after --drain, for connections to close and the process to end


def image() -> str:
    """The instructions of the Dockerfile, each in one line."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.M)
    return re.sub(r"\\\n\s*", "", text)


def unit() -> RawConfigParser:
    parsed = RawConfigParser(strict=True, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(DEPLOY / "oscine.service", "utf-8")
    return parsed


def services() -> dict[str, Any]:
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    found: dict[str, Any] = composed["services"]
    return found


def commands() -> dict[str, list[str]]:
    """The arguments of oscine in each file."""
    found = {name: list(service["command"]) for name, service in services().items()}
    (given,) = re.findall(r"^CMD (\[\"serve.*)$", image(), re.M)
    found["Dockerfile"] = json.loads(given)
    found["oscine.service"] = shlex.split(unit()["Service"]["ExecStart"])[1:]
    return found


@pytest.mark.parametrize("name", ["cpu", "nvidia", "mesa", "Dockerfile", "oscine.service"])
def test_the_command_has_these_options(name: str) -> None:
    first, *rest = commands()[name]
    assert first == "serve"
    command: Any = typer.main.get_command(app)
    command = command.get_command(None, "serve")
    parsed = command.make_context("serve", rest).params
    public = parsed["host"] == "0.0.0.0"
    assert public == (name != "oscine.service")
    assert (parsed["api_key_file"] == "/run/secrets/oscine_keys") == public


def test_requests_at_work_have_the_time_to_end() -> None:
    needed = options_of(ServeOptions)["drain"].default + SPARE_S
    assert int(unit()["Service"]["TimeoutStopSec"]) >= needed
    for service in services().values():
        assert int(service["stop_grace_period"].removesuffix("s")) >= needed


def test_containers_serve_this_machine_with_a_key_and_without_privileges() -> None:
    for service in services().values():
        assert service["ports"] == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]
        assert service["secrets"] == ["oscine_keys"] and service["read_only"] is True
        assert service["cap_drop"] == ["ALL"] and "privileged" not in service
    assert "USER 10001" in image() and f"EXPOSE {DEFAULT_PORT}" in image()
    assert "/deploy/keys" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_what_is_copied_exists_and_is_sent_to_the_daemon() -> None:
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    copied = re.findall(r"^COPY (?:--chmod=\d+ )?((?!--)\S.*)$", image(), re.M)
    names = {name for line in copied for name in line.split()[:-1]}
    assert names == {line.removeprefix("!") for line in sent if line.startswith("!")}
    for name in names:
        assert (ROOT / name).exists(), name
    assert (DEPLOY / "entrypoint.sh").stat().st_mode & 0o111


def test_the_health_check_is_a_program() -> None:
    (given,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*)$", image(), re.M)
    python, flag, code = json.loads(given)
    assert (python, flag) == ("python3", "-c") and f":{DEFAULT_PORT}/health'" in code
    compile(code, "check", "exec")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "oscine.service").read_text("utf-8")
    (tmp_path / "oscine.service").write_text(text.replace("/opt/oscine/bin/oscine", "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "oscine.service")],
        text=True,
        capture_output=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
