"""The daemon that the tests talk to."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]


def binary(name: str) -> Path:
    binaries = os.environ.get("SUBSTRAT_BIN_DIR") or PACKAGE.parents[1] / "target" / "release"
    path = Path(binaries, name)
    assert path.is_file(), f'{path} is missing: run "make build" first'
    return path


@contextmanager
def running(*settings: str) -> Iterator[Path]:
    """The socket of a daemon in a home of its own, with settings such as `slots.default=1`."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SUBSTRAT_")}
    # Short, because the path of a Unix socket must be.
    with tempfile.TemporaryDirectory(prefix="substrat-") as folder:
        home = Path(folder, "home")
        command = [str(binary("substratd")), "--home", str(home), "--background"]
        for setting in settings:
            command += ["--set", setting]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as daemon:
            assert daemon.stdout is not None
            try:
                assert daemon.stdout.readline().startswith("ready "), "the daemon does not start"
                yield home / "substratd.sock"
            finally:
                daemon.kill()


@pytest.fixture(scope="session")
def socket() -> Iterator[Path]:
    """The socket of a daemon that tests share."""
    with running() as socket:
        yield socket
