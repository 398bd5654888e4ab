# SPDX-License-Identifier: Apache-2.0
"""Debian packages and the Python environment."""

import os
import shutil
import subprocess
import sys
import time

from control import layout
from control.errors import CloudError, tail

# Program and the package that has it. The core package of MariaDB brings no service with it.
PROGRAMS = {
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    # mariadb-install-db calls it.
    "my_print_defaults": "mariadb-client-core",
    "rabbitmq-server": "rabbitmq-server",
    "epmd": "erlang-base",
    "sudo": "sudo",
    "losetup": "mount",
    "unshare": "util-linux",
    "cp": "coreutils",
}
APT_SECONDS = 900
PIP_SECONDS = 1200
PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def say(text):
    """Progress, on standard error."""
    print(f"openstack: {text}", file=sys.stderr, flush=True)


def run(what, command, seconds, **options):
    """Runs a command into a log of its own, with a word every twenty seconds."""
    layout.LOG.mkdir(parents=True, exist_ok=True)
    log = layout.LOG / f"{what}.log"
    started = told = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
        while True:
            try:
                status = process.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now - started > seconds:
                    process.kill()
                    process.wait()
                    raise CloudError(f"{what} takes longer than {seconds} s; {tail(log)}") from None
                if now - told > 20:
                    told = now
                    say(f"{what}: {int(now - started)} s")
    if status != 0:
        raise CloudError(f"{what} failed with status {status}; {tail(log)}")


def packages():
    """Installs the Debian packages whose programs are missing."""
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=PATH)})
    try:
        import ensurepip  # noqa: F401: it is a package of its own on Debian
    except ImportError:
        missing.append("python3-venv")
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise CloudError(f"these packages (by their Debian names) are missing, and there is no apt-get: {' '.join(missing)}")
    say(f"installing {' '.join(missing)}")
    # In runlevel 1 no package starts its service; systemd takes no heed of that, but of being spoken of as off.
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1", SYSTEMD_OFFLINE="1")
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30"]
    run("apt-update", [*apt, "update"], APT_SECONDS, env=environment)
    run("apt-install", [*apt, "install", "-y", "--no-install-recommends", *missing], APT_SECONDS, env=environment)


def python_environment():
    """Makes the Python environment, at once or not at all."""
    target = layout.venv()
    if (target / "complete").exists():
        return
    if sys.version_info < (3, 11):
        raise CloudError(f"Python {sys.version.split()[0]} is too old: the services need 3.11 or newer")
    say("installing the services with pip, once (about a minute)")
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    run("venv", [sys.executable, "-m", "venv", str(target)], 120)
    requirements, constraints = layout.requirements()
    pip = [str(target / "bin/pip"), "install", "--progress-bar=off", "--retries=5", "-r", str(requirements)]
    run("pip", [*pip, "-c", str(constraints)], PIP_SECONDS)
    (target / "complete").touch()
