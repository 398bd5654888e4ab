# SPDX-License-Identifier: Apache-2.0
"""install, up, down, restart, stop, start, status."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

from control import install, layout, services
from control.errors import CloudError, tail
from control.install import say
from control.waiting import listens, wait_for

LOCK_SECONDS = 1800
# Where the disk is slow the database alone takes five minutes.
UP_SECONDS = 1200
DOWN_SECONDS = 30
RESTART_SECONDS = 60
LOSETUP = ["losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"]


def main(arguments, usage):
    """Runs one command; answers the exit status."""
    known = {("install",): install_parts, ("up",): up, ("down",): down, ("status",): status}
    try:
        if layout.RELEASE and layout.RELEASE not in layout.releases():
            raise CloudError(f"OPENSTACK is '{layout.RELEASE}'; it can be {', '.join(layout.releases())}")
        if tuple(arguments) in known:
            known[tuple(arguments)]()
        elif len(arguments) == 2 and arguments[0] in OF_ONE_SERVICE:
            OF_ONE_SERVICE[arguments[0]](arguments[1])
        else:
            print(usage, file=sys.stderr)
            return 2
    except (CloudError, OSError, subprocess.SubprocessError) as error:
        say(str(error))
        return 1
    return 0


@contextlib.contextmanager
def only_one():
    """One command at a time, whoever starts it."""
    layout.CACHE.mkdir(parents=True, exist_ok=True)
    with open(layout.LOCK, "w", encoding="utf-8") as lock:

        def take():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False

        if not take():
            say("another command is at work; waiting for it")
            wait_for("the other command to end", LOCK_SECONDS, take)
        yield


def install_parts():
    """Installs what is missing, and starts nothing."""
    if os.geteuid() != 0:
        raise CloudError("run as root: packages are installed")
    with only_one():
        install.packages()
        install.python_environment()


def up():
    """Starts the cloud unless it runs."""
    if os.geteuid() != 0:
        raise CloudError("run as root: loop devices and the process namespace need it")
    with only_one():
        if is_up():
            print(layout.READY)
            return
        started = time.monotonic()
        take_down()
        install.packages()
        install.python_environment()
        for name, port in layout.PORTS.items():
            if listens(port):
                raise CloudError(f"port {port} on loopback is taken: {name} needs it")
        shutil.rmtree(layout.LOG, ignore_errors=True)
        layout.LOG.mkdir(parents=True)
        layout.RUN.mkdir(mode=0o700)
        layout.RUNNING.write_text(layout.RELEASE)
        start_keeper()
        say(f"up after {time.monotonic() - started:.0f} s; the logs are in {layout.LOG}")
        print(layout.READY)


def start_keeper():
    """Starts the keeper in a process namespace of its own, and follows it until the cloud is up."""
    begun = time.monotonic()
    say("starting")
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-B", "-m", "control.keeper"]
    with open(layout.LOG / "keeper.out", "wb") as log:
        parent = subprocess.Popen(
            command,
            cwd=layout.HERE,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    told = 0

    def follow():
        nonlocal told
        lines = layout.PROGRESS.read_text().splitlines() if layout.PROGRESS.exists() else []
        text = "\n".join(lines[told:])
        told = len(lines)
        if "failed: " in text:
            take_down()
            raise CloudError(f"the cloud does not start: {text.split('failed: ', 1)[1]}")
        if text:
            say(f"{time.monotonic() - begun:.0f} s: {text}")
        if parent.poll() is not None:
            raise CloudError(f"the keeper ended with status {parent.returncode}; {tail(layout.LOG / 'keeper.out')}")
        if not layout.KEEPER.exists():
            remember(parent.pid)
        return layout.READY.exists()

    try:
        wait_for("the cloud to be up", UP_SECONDS, follow)
    except CloudError as error:
        take_down()
        # The next start writes logs of its own.
        shutil.rmtree(layout.FAILED_LOG, ignore_errors=True)
        layout.LOG.rename(layout.FAILED_LOG)
        reason = str(error).replace(str(layout.LOG), str(layout.FAILED_LOG))
        raise CloudError(f"{reason}; all logs are in {layout.FAILED_LOG}") from None
    except KeyboardInterrupt:
        take_down()
        raise


def remember(parent):
    """Writes down which process the keeper is: unshare's only child."""
    with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
        child = file.read().split()
    if child and (since := start_time(child[0])):
        layout.KEEPER.write_text(f"{child[0]} {since}\n")


def start_time(pid):
    """When a process was started, in the kernel's ticks; it tells a process from a later one of the same number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def keeper():
    """The keeper's process id if it runs."""
    try:
        pid, since = layout.KEEPER.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if start_time(pid) == since else None


def is_up():
    """Whether the cloud runs, with the services of the release that is chosen."""
    running = layout.RUNNING.read_text() if layout.RUNNING.exists() else ""
    if running != layout.RELEASE:
        return False
    is_stopped = (layout.STOP / "keystone").exists()
    return layout.READY.exists() and keeper() is not None and (is_stopped or listens(layout.PORTS["keystone"]))


def status():
    """Prints where the description is."""
    if not is_up():
        raise CloudError("the cloud is not up")
    print(layout.READY)


def down():
    """Ends everything."""
    with only_one():
        take_down()


def take_down():
    """Ends the keeper and with it every process; gives back loop devices; removes all state but the logs."""
    pid = keeper()
    if pid is not None:
        say("ending the cloud")
        os.kill(pid, signal.SIGTERM)
        try:
            wait_for("the keeper to end", DOWN_SECONDS, lambda: keeper() is None)
        except CloudError:
            os.kill(pid, signal.SIGKILL)
            wait_for("the keeper to be gone", DOWN_SECONDS, lambda: keeper() is None)
    left = loop_devices()
    for device in left:
        subprocess.run(["losetup", "--detach", device], check=True, timeout=30)
    if left:
        try:
            wait_for("the loop devices to go", 5, lambda: not loop_devices())
        except CloudError:
            raise CloudError(f"loop devices of the cloud are still in use, mounted perhaps: {loop_devices()}") from None
    shutil.rmtree(layout.RUN, ignore_errors=True)
    if layout.RUN.exists():
        raise CloudError(f"{layout.RUN} cannot be removed")


def loop_devices():
    """The loop devices of the cloud's volumes, also of files that are gone."""
    done = subprocess.run(LOSETUP, capture_output=True, text=True, timeout=30, check=True)
    pairs = (line.split(" ", 1) for line in done.stdout.splitlines())
    return [pair[0] for pair in pairs if len(pair) == 2 and pair[1].startswith(f"{layout.RUN}/")]


@contextlib.contextmanager
def service(name):
    """The file with a service's process id, while no other command is at work."""
    pid_file = layout.PIDS / name
    if not pid_file.exists():
        raise CloudError(f"there is no service {name}; the services are {', '.join(sorted(p.name for p in layout.PIDS.glob('*')))}")
    with only_one():
        if not is_up():
            raise CloudError("the cloud is not up")
        yield pid_file


def end(pid_file):
    """Asks a service to end, with all the processes that it started."""
    group = f"-{pid_file.read_text().strip()}"
    inside = ["nsenter", f"--target={keeper()}", "--pid", "--mount", "sh", "-c", 'kill -TERM "$1"', "end", group]
    subprocess.run(inside, check=True, timeout=30)


def restart(name):
    """Ends one service and waits until it runs again."""
    with service(name) as pid_file:
        marker = layout.RESTART / name
        marker.touch()
        end(pid_file)
        wait_for(f"{name} to be started again", RESTART_SECONDS, lambda: not marker.exists())


def stop(name):
    """Ends one service, which stays ended until it is started."""
    with service(name) as pid_file:
        (layout.STOP / name).touch()
        end(pid_file)
        wait_for(f"{name} to end", RESTART_SECONDS, lambda: not pid_file.exists())


def start(name):
    """Starts a service that was ended, and waits until it answers where it has a port."""
    with only_one():
        if not is_up():
            raise CloudError("the cloud is not up")
        if not (layout.STOP / name).exists():
            raise CloudError(f"the service {name} was not stopped; stopped are {sorted(p.name for p in layout.STOP.glob('*'))}")
        (layout.STOP / name).unlink()
        wait_for(f"{name} to be started", RESTART_SECONDS, (layout.PIDS / name).exists)
        port = layout.PORTS.get(services.LISTENING.get(name))
        wait_for(f"{name} to listen", RESTART_SECONDS, lambda: port is None or listens(port))


OF_ONE_SERVICE = {"restart": restart, "stop": stop, "start": start}
