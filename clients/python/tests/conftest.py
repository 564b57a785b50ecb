"""The daemon that the tests talk to."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def socket() -> Iterator[Path]:
    """The socket of a daemon in a home of its own."""
    binaries = os.environ.get("SUBSTRAT_BIN_DIR") or PACKAGE.parents[1] / "target" / "release"
    binary = Path(binaries, "substratd")
    assert binary.is_file(), f'{binary} is missing: run "make build" first'
    env = {key: value for key, value in os.environ.items() if not key.startswith("SUBSTRAT_")}
    # Short, because the path of a Unix socket must be.
    with tempfile.TemporaryDirectory(prefix="substrat-") as folder:
        home = Path(folder, "home")
        command = [str(binary), "--home", str(home), "--background"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as daemon:
            assert daemon.stdout is not None
            try:
                assert daemon.stdout.readline().startswith("ready "), "the daemon does not start"
                yield home / "substratd.sock"
            finally:
                daemon.kill()
