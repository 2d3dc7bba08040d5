# Copyright (c) 2026 headroom.serving contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node lacks of the runtime: one look at everything that the role manages, and what must be done about it."""

from __future__ import annotations

import grp
import os
import platform
import pwd
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.headroom.serving.plugins.module_utils import engine_prune, os_packages, wheel_store
from ansible_collections.headroom.serving.plugins.module_utils.engine_store import Store
from ansible_collections.headroom.serving.plugins.module_utils.errors import HeadroomError
from ansible_collections.headroom.serving.plugins.module_utils.interpreter import Interpreter, describe
from ansible_collections.headroom.serving.plugins.module_utils.refusal import refusal
from ansible_collections.headroom.serving.plugins.module_utils.venv_id import venv_id

_SHELLS_WITHOUT_LOGIN = ("nologin", "false")


@dataclass(frozen=True)
class Account:
    """A user of the node; `group` is the primary one's name."""

    group: str
    home: str
    shell: str


@dataclass(frozen=True)
class Directory:
    """A directory that must be there; `mode` in octal digits."""

    path: str
    owner: str
    group: str
    mode: str

    def as_dict(self) -> dict[str, str]:
        """Return plain data, as modules return it."""
        return {"path": self.path, "owner": self.owner, "group": self.group, "mode": self.mode}


def probe(params: Mapping[str, Any]) -> dict[str, Any]:
    """Look at the node and return what it lacks; see the options and the return values of the module runtime_probe.

    Raises:
        HeadroomError: If the node can't be served at all: not root, no systemd, unsupported, no interpreter.
    """
    refuse_unfit(os.geteuid(), Path("/run/systemd/system").is_dir())
    release = os_packages.parse_os_release(_os_release())
    full = params["scope"] == "all"
    engines = list(params["engines"] or []) if full else []
    tools = params["tools"]
    interpreters = {path: describe(path) for path in {tools["python"], *(item["python"] for item in engines)}}

    given = params["packages"]
    row = None if given is not None else os_packages.find_distribution(release, platform.machine())
    wanted = list(given or [])
    if row is not None:
        paths = [item["python"] for item in engines]
        wanted = os_packages.wanted_packages(row, paths, tools["python"], with_compiler=full)
    manager = row.manager if row is not None else os_packages.package_manager(release)
    missing = missing_packages(wanted, installed_packages(wanted, manager))
    settings = {"sglang_runtime_tools_python": tools["python"]}
    settings.update({f"sglang_runtime_engines[{item['name']}].python": item["python"] for item in engines})
    for setting, path in settings.items():
        if interpreters[path] is None:
            os_packages.refuse_missing_interpreter(setting, path, row, missing)

    root = Path(params["root"])
    account = find_account(params["user"]) if full else None
    todo: dict[str, Any] = {"packages": missing, "groups": [], "users": [], "prune": []}
    if full:
        todo["groups"] = [] if _has_group(params["group"]) else [params["group"]]
        todo["users"] = account_todo(account, params["user"], params["group"], params["home"])
    directories = wanted_directories(root, params["user"], params["group"], params["home"], full)
    todo["directories"] = [item.as_dict() for item in directories if _differs(item)]
    tools_store = Store(root, "tools")
    todo["tools"] = venv_todo(tools_store, "current", tools, interpreters[tools["python"]])
    store = Store(root, "engine")
    todo["engines"] = [
        found for item in engines for found in venv_todo(store, item["name"], item, interpreters[item["python"]])
    ]
    if full:
        # Names that are about to move keep their present engines until they have moved.
        listed = [item["name"] for item in engines]
        found = engine_prune.unused(store, Path(params["instances"]), int(params["keep_unused"]), listed)
        todo["prune"] = found.engines + found.names
    return {
        "distribution": row.title if row is not None else release.get("PRETTY_NAME", ""),
        "package_manager": manager,
        "interpreters": {path: item.as_dict() if item else None for path, item in interpreters.items()},
        "todo": todo,
        "resolved": {item["name"]: resolve(store, item, interpreters[item["python"]]) for item in engines},
    }


def refuse_unfit(uid: int, has_systemd: bool) -> None:
    """Refuse a node on which nothing can be installed.

    Raises:
        HeadroomError: If the module does not run as root or systemd is not process 1.
    """
    if uid != 0:
        raise HeadroomError("The runtime is installed as root, but the task runs as another user: set 'become: true'.")
    if not has_systemd:
        raise refusal(
            "host.no_systemd",
            "The node was not booted with systemd (there is no /run/systemd/system), and instances are systemd units.",
            "Use a host, a virtual machine or a container that runs systemd as process 1.",
        )


def missing_packages(wanted: Iterable[str], installed: Iterable[str]) -> list[str]:
    """Return the wanted packages that are not installed, in their order."""
    there = set(installed)
    return [name for name in wanted if name not in there]


def account_todo(account: Account | None, user: str, group: str, home: str) -> list[dict[str, str]]:
    """Return what the module ansible.builtin.user must be given, nothing where the account is as it should be."""
    good = (
        account is not None
        and account.group == group
        and account.home == home
        and account.shell.rpartition("/")[2] in _SHELLS_WITHOUT_LOGIN
    )
    return [] if good else [{"name": user, "group": group, "home": home}]


def wanted_directories(root: Path, user: str, group: str, home: str, full: bool) -> list[Directory]:
    """Return the directories in the order in which they can be made."""
    wanted = [
        Directory(str(root), "root", "root", "0755"),
        Directory(str(root / "tools"), "root", "root", "0755"),
        Directory(str(wheel_store.DEFAULT.parent), "root", "root", "0755"),
        Directory(str(wheel_store.DEFAULT), "root", "root", "0755"),
    ]
    if full:
        wanted += [
            Directory(str(root / "engines"), "root", "root", "0755"),
            Directory(str(root / "engines" / "names"), "root", "root", "0755"),
            Directory(str(root / "cache"), "root", "root", "0700"),
            Directory(home, user, group, "0750"),
        ]
    return wanted


def venv_todo(
    store: Store, link: str, item: Mapping[str, Any], interpreter: Interpreter | None
) -> list[dict[str, Any]]:
    """Return what must be done so that `link` points to a whole venv of this lock: nothing, a switch, an installation.

    Where the interpreter itself is still to be installed, the id is not known yet and None.
    """
    wanted = _id_of(item, interpreter)
    base = {"name": item["name"], "id": wanted}
    if wanted is None:
        return [{**base, "action": "install", "reason": f"{item['python']} comes first"}]
    if store.record(wanted) is None:
        half = store.path(wanted).exists()
        return [{**base, "action": "install", "reason": "half installed" if half else "not installed"}]
    target = store.target(link)
    if target != wanted:
        return [{**base, "action": "link", "reason": f"name points to {target}" if target else "no name points to it"}]
    return []


def resolve(store: Store, item: Mapping[str, Any], interpreter: Interpreter | None) -> dict[str, Any]:
    """Return id, path, interpreter and version of an engine; None for what is not known before it is installed."""
    wanted = _id_of(item, interpreter)
    record = store.record(wanted) if wanted else None
    return store.resolve(wanted, record.get("version") if record else None)


def installed_packages(names: Sequence[str], manager: str) -> set[str]:
    """Return those of the packages that are installed, as the distribution's own database says.

    Raises:
        HeadroomError: If the node has neither dpkg nor rpm.
    """
    if not names:
        return set()
    if manager == "apt":
        query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *names]
    else:
        query = ["rpm", "--query", "--queryformat=%{NAME} installed\n", *names]
    try:
        # Both end with 1 when a package is not known.
        done = subprocess.run(query, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    except FileNotFoundError:
        raise HeadroomError(f"The node has no {query[0]}: its packages can't be checked.") from None
    lines = (line.split() for line in done.stdout.splitlines())
    return {parts[0] for parts in lines if parts[1:] == ["installed"]}


def find_account(name: str) -> Account | None:
    """Return an account of the node, local or from a directory service."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    if entry.pw_uid == 0:
        raise refusal("settings.invalid", f"sglang_runtime_user is '{name}', which has user id 0.", "Name another.")
    try:
        group = grp.getgrgid(entry.pw_gid).gr_name
    except KeyError:
        group = str(entry.pw_gid)
    return Account(group, entry.pw_dir, entry.pw_shell)


def _id_of(item: Mapping[str, Any], interpreter: Interpreter | None) -> str | None:
    if interpreter is None:
        return None
    return venv_id(item["lock_sha256"], interpreter.version, interpreter.platform, item["shim_sha256"] or "")


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _differs(wanted: Directory) -> bool:
    try:
        found = Path(wanted.path).stat()
        owner, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name
    except (OSError, KeyError):
        return True
    same = owner == wanted.owner and group == wanted.group and stat.S_IMODE(found.st_mode) == int(wanted.mode, 8)
    return not (same and stat.S_ISDIR(found.st_mode))


def _os_release() -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            return Path(path).read_text(encoding="utf-8")
        except OSError:
            continue
    return ""
