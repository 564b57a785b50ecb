"""Where `generate` and `test` keep what they install: in .cache/clients at the project's root."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent
ROOT = CLIENTS.parent
CACHE = ROOT / ".cache" / "clients"
PYTHON = CLIENTS / "python"
TYPESCRIPT = CLIENTS / "typescript"

if sys.version_info < (3, 11):
    sys.exit("Python 3.11 or newer is needed")


def alone() -> AbstractContextManager[object]:
    """Keeps a second run out until the returned lock is closed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    lock = open(CACHE / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def run(*command: str | Path, cwd: Path = CLIENTS, env: dict[str, str] | None = None) -> None:
    """Runs a command and ends this script if it fails."""
    # What was printed before comes before what the command prints.
    sys.stdout.flush()
    try:
        subprocess.run(command, cwd=cwd, env=os.environ | (env or {}), check=True)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is needed and not installed")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{Path(command[0]).name} failed with {error.returncode}")


def python_tools() -> Path:
    """A virtual environment with what requirements.txt pins."""
    folder, pins = CACHE / "generate-python", CLIENTS / "requirements.txt"

    def install() -> None:
        venv(folder, "--no-deps", "-r", pins)

    prepare(folder, "buf and the plugins for Python", [pins], install)
    return folder


def node_tools() -> Path:
    """A folder with what the lock of the TypeScript package pins."""
    folder = CACHE / "generate-node"
    pins = [TYPESCRIPT / name for name in (".npmrc", "package.json", "package-lock.json")]

    def install() -> None:
        folder.mkdir()
        for path in pins:
            shutil.copy(path, folder)
        npm_ci(folder)

    prepare(folder, "the plugin for TypeScript", pins, install)
    return folder


def venv(folder: Path, *requirements: str | Path) -> None:
    """Makes a virtual environment with these requirements, as arguments of pip."""
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *requirements)


def npm_ci(folder: Path) -> None:
    """Installs what a package locks, for its development, without running scripts."""
    npm(folder, "ci", "--ignore-scripts")


def npm(folder: Path, *arguments: str) -> None:
    run("npm", *arguments, "--prefer-offline", "--silent", cwd=folder)


def prepare(
    folder: Path, what: str, made_from: Iterable[Path], install: Callable[[], None]
) -> None:
    """Makes a folder anew, unless it was made from the same files before."""
    stamp = folder / ".made-from"
    digest = fingerprint(folder, made_from)
    if stamp.is_file() and stamp.read_text() == digest:
        return
    print(f"installing {what} into {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    install()
    stamp.write_text(digest)


def fingerprint(folder: Path, files: Iterable[Path]) -> str:
    # Virtual environments hold their own path and belong to one interpreter.
    digest = hashlib.sha256(f"{folder} {sys.version} {platform.platform()}".encode())
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def package_files(package: Path) -> list[Path]:
    """The files of a package, without what tools leave there."""
    left = {"node_modules", "__pycache__", "build", "dist"}
    found = (path for path in package.rglob("*") if path.is_file())
    return sorted(path for path in found if left.isdisjoint(path.relative_to(package).parts))
