# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a venv from a lock: the long work behind locked_venv, as a job of its own.

Nothing is taken for installed before its record exists, and the record is written last, by rename, after the venv was
imported by the account that will use it. A failed or killed installation leaves the links and all other venvs alone.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.headroom.serving.plugins.module_utils import engine_store, wheel_store
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal

_TELL_EVERY_S = 3.0
_VERIFY_TIMEOUT_S = 600
_NICENESS = 10
# Variables of the caller that decide how an index is reached; a transient unit does not inherit them.
_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ssl_cert_file", "ssl_cert_dir", "requests_ca_bundle")
# Files come on standard input; now and then the number of those that are done goes to standard output. What does not
# compile is left as it is: packages ship such files as test data.
_COMPILE = """
import sys
from compileall import compile_file
from concurrent.futures import ProcessPoolExecutor
from functools import partial
files = sys.stdin.read().splitlines()
with ProcessPoolExecutor() as pool:
    for done, _ok in enumerate(pool.map(partial(compile_file, quiet=2), files, chunksize=32), 1):
        if done % 100 == 0:
            print(done, flush=True)
"""
_ENGINE_CHECK = "import json, sglang; print(json.dumps({'version': sglang.__version__}))"
_TOOLS_CHECK = (
    "import json, psutil, pynvml, huggingface_hub, hf_xet; from importlib.metadata import version; "
    "print(json.dumps({'version': version('uv')}))"
)

Progress = Callable[[str], None]


def network_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those variables that an installer needs to reach its index."""
    chosen = {}
    for name, value in environment.items():
        if name.lower() in _NETWORK or name.startswith(("UV_", "PIP_")):
            chosen[name] = value
    return chosen


@dataclass(frozen=True)
class Work:
    """One venv to be built; see the options of the module locked_venv."""

    store: Store
    id: str
    name: str
    origin: str
    lock_text: str
    packages: int
    python: str
    index_url: str
    find_links: str
    wheels: dict[str, str]
    shim: dict[str, str]
    user: str
    network: dict[str, str]
    record: dict[str, Any]

    @property
    def what(self) -> str:
        """How people call it."""
        return f"engine '{self.name}' ({self.id})" if self.store.kind == "engine" else f"tools ({self.id})"


def run(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Install a venv and switch its link to it: the entry of the job.

    Args:
        params: The fields of Work, with `root` and `kind` in place of `store`.
        progress: Takes one line for people.

    Raises:
        HeadroomError: With the installer's own reason; the half directory is gone then.
    """
    fields = dict(params)
    work = Work(store=Store(Path(fields.pop("root")), fields.pop("kind")), **fields)
    os.umask(0o022)
    # A server may be serving on this node meanwhile.
    os.nice(_NICENESS)
    with work.store.locked(progress):
        record = work.store.record(work.id)
        if record is None:
            record = _build(work, progress)
        else:
            progress(f"{work.what} was installed meanwhile")
        work.store.switch(work.name, work.id)
        if work.store.kind == "tools":
            _remove_other_tools(work)
    version = record.get("version")
    resolved = {work.name: work.store.resolve(work.id, version)}
    return {"changed": True, "version": version, "resolved": resolved, "msg": f"installed {work.what}"}


def decoded(files: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of a shim as they were sent."""
    return {path: base64.b64decode(content) for path, content in files.items()}


def _remove_other_tools(work: Work) -> None:
    """Remove the tools of older locks, which nothing names; one that a job still runs from goes the next time."""
    running = engine_store.running_from(work.store.directory)
    for item in work.store.installed():
        if item.id != work.id and item.id not in running:
            work.store.remove(item.id)


def one_reason(text: str) -> str:
    """Return an installer's error output as one line: its words without boxes, bullets and progress."""
    words: list[str] = []
    for line in text.splitlines():
        line = line.strip().lstrip("×╰─▶├│ ").removeprefix("error:").removeprefix("ERROR:").strip()
        if line and not line.startswith(("Resolved ", "Prepared ", "Using ", "WARNING:", "warning:", "[notice]")):
            words += line.split()
    reason = " ".join(words)
    return reason if len(reason) <= 600 else reason[:600] + " ..."


def _build(work: Work, progress: Progress) -> dict[str, Any]:
    directory = work.store.path(work.id)
    work.store.remove_leftovers()
    if directory.exists():
        progress(f"removing what an interrupted installation left in {directory}")
        work.store.remove(work.id)
    directory.mkdir(mode=0o755)
    spent: dict[str, float] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="headroom-venv-") as scratch:
            builder = _Builder(work, Path(scratch), progress, spent)
            version = builder.build()
    except BaseException:
        # Also for a signal: whoever comes next shall find nothing rather than a half.
        work.store.remove(work.id)
        raise
    record = {
        "format": engine_store.FORMAT,
        "kind": work.store.kind,
        "id": work.id,
        "version": version,
        "installed_at": time.time(),
        "packages": work.packages,
        "python": str(work.store.venv(work.id) / "bin" / "python"),
        "seconds": {step: round(value, 1) for step, value in spent.items()},
        **work.record,
    }
    # A power failure must not leave a record without the files that it vouches for.
    subprocess.run(["sync", "--file-system", str(directory)], check=True)
    draft = directory / (engine_store.RECORD + ".new")
    draft.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(directory / engine_store.RECORD)
    progress(f"{work.what}: version {version}, {sum(spent.values()):.0f} s")
    return record


@dataclass(frozen=True)
class _Builder:
    work: Work
    scratch: Path
    progress: Progress
    spent: dict[str, float]

    @property
    def venv(self) -> Path:
        return self.work.store.venv(self.work.id)

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def build(self) -> str:
        """Build the venv and return the version that it reports."""
        lock = self.work.store.path(self.work.id) / engine_store.LOCK_COPY
        lock.write_text(self.work.lock_text, encoding="utf-8")
        with _timed(self.spent, "install"):
            self._install(lock)
        # uv leaves its lock there for everybody to write.
        (self.venv / ".lock").unlink(missing_ok=True)
        self._lay_shim()
        with _timed(self.spent, "compile"):
            self._compile()
        with _timed(self.spent, "verify"):
            return self._verify()

    @property
    def _output(self) -> Path:
        return self.scratch / "output"

    @property
    def _site_packages(self) -> Path:
        found = sorted((self.venv / "lib").glob("python*/site-packages"))
        return found[0]

    def _source(self) -> list[str]:
        """Options that pip and uv share; an index goes by the environment, which other users can't read."""
        if self.work.wheels:
            # Each wheel by its place in the store: uv's cache knows a wheel by its path, and these never change.
            places = sorted(str(wheel_store.DEFAULT / digest) for digest in self.work.wheels)
            return ["--no-index", *(f"--find-links={place}" for place in places)]
        if self.work.find_links:
            return ["--no-index", f"--find-links={self.work.find_links}"]
        return []

    def _install(self, lock: Path) -> None:
        work = self.work
        environment = {**os.environ, **work.network, "HOME": "/root", "TMPDIR": str(self.scratch)}
        if work.store.kind == "tools":
            environment.update({"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_NO_CACHE_DIR": "1"})
            if work.index_url:
                environment["PIP_INDEX_URL"] = work.index_url
                # pip ignores an index without TLS otherwise; the hashes of the lock make the road irrelevant.
                environment["PIP_TRUSTED_HOST"] = urlsplit(work.index_url).netloc
            create = [work.python, "-I", "-m", "venv", str(self.venv)]
            install = [str(self.python), "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"]
        else:
            uv = str(work.store.root / "tools" / "current" / "bin" / "uv")
            environment.update(
                {
                    "UV_CACHE_DIR": str(work.store.cache),
                    "UV_LINK_MODE": "hardlink",
                    "UV_NO_PROGRESS": "1",
                    "UV_PYTHON_DOWNLOADS": "never",
                }
            )
            if work.index_url:
                environment["UV_DEFAULT_INDEX"] = work.index_url
            create = [uv, "venv", "--quiet", "--no-project", f"--python={work.python}", str(self.venv)]
            install = [uv, "pip", "install", "--quiet", "--no-build", f"--python={self.python}"]
        install += ["--no-deps", "--require-hashes", *self._source(), f"--requirement={lock}"]
        self.progress(f"{work.what}: installing {work.packages} packages with {work.python}")
        self._run(create, environment, self._seen)
        self._run(install, environment, self._seen)

    def _seen(self) -> str:
        there = len(list(self._site_packages.glob("*.dist-info"))) if (self.venv / "lib").is_dir() else 0
        unpacked = _size_of(self.work.store.cache) if self.work.store.kind == "engine" else _size_of(self.venv)
        return f"installing: {there} of {self.work.packages} packages in place, {unpacked / 1e6:.0f} MB unpacked"

    def _lay_shim(self) -> None:
        for relative, content in decoded(self.work.shim).items():
            target = self._site_packages / relative
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            # Written beside and renamed: the file in place may be a hard link into the installer's cache.
            draft = target.with_name(target.name + ".new")
            draft.write_bytes(content)
            draft.replace(target)

    def _compile(self) -> None:
        files = sorted(str(path) for path in self._site_packages.rglob("*.py"))
        self.progress(f"compiling {len(files)} files on {os.cpu_count() or 1} processors")

        def seen() -> str:
            done = self._output.read_text(encoding="utf-8").split()
            return f"compiling: {done[-1] if done else 0} of {len(files)} files"

        self._run([str(self.python), "-I", "-c", _COMPILE], dict(os.environ), seen, "\n".join(files))

    def _verify(self) -> str:
        """Import the venv as the account that will use it, in a home and a temporary directory of its own."""
        work = self.work
        check = _ENGINE_CHECK if work.store.kind == "engine" else _TOOLS_CHECK
        account = pwd.getpwnam(work.user) if work.user else None
        home = self.scratch / "home"
        home.mkdir(mode=0o700)
        self.scratch.chmod(0o711)
        environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": str(home), "TMPDIR": str(home)}
        # An import must not touch the GPUs: a server may be filling them.
        environment["CUDA_VISIBLE_DEVICES"] = ""
        if account is not None:
            os.chown(home, account.pw_uid, account.pw_gid)
        self.progress("importing " + ("sglang" if work.store.kind == "engine" else "the tools"))
        done = subprocess.run(
            [str(self.python), "-I", "-c", check],
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERIFY_TIMEOUT_S,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise self._failed(f"it installs but can't be imported: {lines[-1].strip()}")
        return str(json.loads(done.stdout.strip().splitlines()[-1])["version"])

    def _run(
        self, command: Sequence[str], environment: Mapping[str, str], seen: Callable[[], str], given: str = ""
    ) -> None:
        """Run a command with `given` on its standard input, telling what can be seen of it every few seconds.

        Raises:
            HeadroomError: With the command's own reason, if it fails.
        """
        source = self.scratch / "input"
        source.write_text(given, encoding="utf-8")
        with self._output.open("w", encoding="utf-8") as output, source.open(encoding="utf-8") as stdin:
            process = subprocess.Popen(
                command, env=dict(environment), stdin=stdin, stdout=output, stderr=subprocess.STDOUT
            )
            while True:
                try:
                    process.wait(timeout=_TELL_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    self.progress(seen())
        if process.returncode != 0:
            said = self._output.read_text(encoding="utf-8", errors="replace")
            raise self._failed(one_reason(said) or f"{Path(command[0]).name} ended with {process.returncode}")

    def _failed(self, reason: str) -> HeadroomError:
        return refusal(
            "engine.install_failed",
            f"{self.work.origin} does not install: {reason.rstrip('.')}.",
            "What was installed before stays in use.",
        )


class _timed:
    """Adds the seconds that a block took to `spent[step]`."""

    def __init__(self, spent: dict[str, float], step: str) -> None:
        self._spent, self._step = spent, step

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_exception: object) -> None:
        self._spent[self._step] = time.monotonic() - self._start


def _size_of(directory: Path) -> int:
    """Return the bytes of the files below a directory that changes meanwhile."""
    total = 0
    for parent, _directories, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118  thousands of files
            except OSError:
                continue
    return total
