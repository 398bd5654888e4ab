# SPDX-License-Identifier: Apache-2.0
"""The namespaces in which the root directory is all there is, and the commands in them."""

import os
import pathlib
import subprocess
import threading

from errors import RoomError

HERE = pathlib.Path(__file__).resolve().parent
PATH = "/usr/local/rust/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTER_SECONDS = 60
# What the harness's own script for the removal of a cluster may take, and some.
END_SECONDS = 240


class Namespace:
    """Lasts until `end`, or until this process ends: its first process holds a pipe from here."""

    def __init__(self, root, home, source, variables, lock):
        self.root, self.home, self.source = root, home, source
        # The home directory's name tells loop devices of files in it from those of the machine, whose paths look alike from here.
        self.environment = {
            "HOME": home,
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "RUSTUP_HOME": "/usr/local/rust",
        } | variables
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL"]
        command += [str(HERE / "entry"), str(root), home, source, *self.settings()]
        self.keeper = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Held for as long as anything of the room is left.
            pass_fds=[lock],
        )
        told = self.read_until("ready", ENTER_SECONDS)
        if told is None or told:
            self.end()
            raise RoomError(f"the namespaces cannot be made: {' '.join(told or ['no answer'])}")
        children = pathlib.Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text().split()
        self.init = children[0]

    def settings(self):
        """The environment as words for env."""
        return [f"{name}={value}" for name, value in self.environment.items()]

    def read_until(self, word, seconds):
        """What the keeper prints before a line with this word; nothing if that does not come in time."""
        timer = threading.Timer(seconds, self.keeper.kill)
        timer.start()
        try:
            lines = []
            for line in self.keeper.stdout:
                if line.strip() == word:
                    return lines
                lines.append(line.strip())
            return None if not lines or not timer.is_alive() else lines
        finally:
            timer.cancel()

    def command(self, script, network=True):
        """The command of this machine that runs a script inside, in the clone."""
        inside = ["bash", "-euo", "pipefail", "-c", script]
        if not network:
            inside = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *inside]
        enter = ["nsenter", f"--target={self.init}", "--mount", "--pid", "--"]
        return [*enter, "env", "-i", "-C", f"/{self.source}", *self.settings(), *inside]

    def ask(self, script):
        """What a short script prints inside."""
        done = subprocess.run(self.command(script), capture_output=True, text=True, timeout=120, check=False, start_new_session=True)
        if done.returncode != 0:
            raise RoomError(f"`{script}` failed in the room with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def outside(self, path):
        """A path of the inside as this machine has it."""
        return self.root / str(path).lstrip("/")

    def end(self):
        """Ends every process and gives back loop devices and groups of processes. Returns what could not be removed."""
        if self.keeper.stdin.closed:
            return []
        self.keeper.stdin.close()
        left = self.read_until("ended", END_SECONDS)
        try:
            self.keeper.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.keeper.kill()
            self.keeper.wait()
        if left is None:
            left = ["the first process of the room did not end in time"]
        return left + self.remains()

    def remains(self):
        """What the machine still has of the room."""
        listing = subprocess.run(
            ["losetup", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"], capture_output=True, text=True, timeout=30, check=True
        )
        left = [line for line in listing.stdout.splitlines() if f" {self.home}/" in line]
        runs = self.outside(self.home) / ".cache/cinder-csi/run"
        left += [str(run) for run in runs.glob("*/")]
        mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        return left + [line.split(" ")[4] for line in mounts if line.split(" ")[4].startswith(str(self.root))]


def stop(process):
    """Ends a command of this machine with all that it has started here."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()
