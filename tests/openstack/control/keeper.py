# SPDX-License-Identifier: Apache-2.0
"""The first process of the cloud's process namespace: starts every service, and with it they all end."""

import collections
import datetime
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from control import layout, services, setup
from control.errors import CloudError, tail
from control.waiting import listens, wait_for

START_SECONDS = 120
TABLES_SECONDS = 300
TICK = 0.2
# How often a service is started again that ended because another was stopped, and how long after its end.
STARTS = 20
START_PAUSE = 1


class Keeper:
    """The services that run."""

    def __init__(self):
        self.commands = services.commands()
        self.running = {}
        self.ending = False

    def say(self, text):
        """One line of progress."""
        with open(layout.PROGRESS, "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def start(self, name):
        """Starts one service in a session of its own."""
        with open(layout.LOG / f"{name}.out", "ab") as log:
            self.running[name] = subprocess.Popen(
                self.commands[name],
                env=services.environment(),
                cwd=layout.RUN,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (layout.PIDS / name).write_text(f"{self.running[name].pid}\n")

    def last_words(self, name):
        """The end of what a service has printed and, where it keeps one, of its log."""
        paths = [path for path in (layout.LOG / f"{name}.out", layout.LOG / f"{name}.log") if path.exists() and path.stat().st_size]
        return "\n".join(map(tail, paths)) or "it has printed nothing and has written no log"

    def check(self):
        """Fails if a service has ended."""
        for name, process in self.running.items():
            status = process.poll()
            if status is not None:
                raise CloudError(f"{name} ended with status {status}; {self.last_words(name)}")

    def wait_for_port(self, name):
        """Waits until a service listens."""

        def ask():
            self.check()
            return listens(layout.PORTS[services.LISTENING[name]])

        wait_for(f"{name} to listen (its log is {layout.LOG / name}.out)", START_SECONDS, ask)

    def tables(self, running):
        """Waits for the programs that make the tables."""

        def ask():
            self.check()
            for name, process in running.items():
                if process.poll() not in (None, 0):
                    raise CloudError(f"{name} failed; {tail(layout.LOG / f'{name}.log')}")
            return all(process.poll() == 0 for process in running.values())

        wait_for("the tables of the services", TABLES_SECONDS, ask)

    def up(self):
        """From nothing to a cloud in which volumes can be attached."""
        since = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        prepared = layout.prepared()
        is_prepared = (prepared / "complete").exists()
        if is_prepared:
            for name in layout.KEPT:
                shutil.copytree(prepared / name, layout.RUN / name)
            shutil.copy(prepared / "cloud.conf", layout.RUN / "cloud.conf")
        services.write_configuration()
        if not is_prepared:
            services.install_database()
        for name in ("mariadb", "epmd", "stubs"):
            self.start(name)
        self.wait_for_port("epmd")
        self.start("rabbitmq")
        self.wait_for_port("mariadb")
        if not is_prepared:
            self.say("making the database, once (about half a minute)")
            services.create_databases()
            services.make_databases(self.tables)
        self.start("keystone")
        self.wait_for_port("keystone")
        if not is_prepared:
            setup.identity()
        self.wait_for_port("rabbitmq")
        self.say("database, messages and Keystone are up")
        for name in self.commands:
            if name not in self.running:
                self.start(name)
        for name in ("placement", "nova-api", "cinder-api"):
            self.wait_for_port(name)
        self.say("the other services answer")
        wait_for("every worker to report", START_SECONDS, lambda: self.is_ready(since))
        if not is_prepared:
            self.prepare(prepared)
        setup.logins()
        setup.write_ready()

    def is_ready(self, since):
        """Whether the workers are there; a service that cannot answer yet is not."""
        self.check()
        try:
            return setup.is_ready(since)
        except CloudError as error:
            print(error, flush=True)
            return False

    def prepare(self, target):
        """Fills the fresh database and keeps a copy of it for the next start."""
        self.say("making servers and volume types")
        manage = [str(layout.venv() / "bin/nova-manage"), "--config-file", str(layout.RUN / "conf/nova.conf")]
        subprocess.run([*manage, "cell_v2", "discover_hosts"], check=True, timeout=60, env=services.environment())
        setup.volume_types()
        setup.compute_zones()
        setup.servers()
        setup.credential()
        part = pathlib.Path(f"{target}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        # A stopped database leaves in its files what one leaves that was killed: it recovers from that by itself.
        self.running["mariadb"].send_signal(signal.SIGSTOP)
        try:
            for name in layout.KEPT:
                shutil.copytree(layout.RUN / name, part / name, ignore=shutil.ignore_patterns("socket"))
            shutil.copy(layout.RUN / "cloud.conf", part / "cloud.conf")
        finally:
            self.running["mariadb"].send_signal(signal.SIGCONT)
        (part / "complete").touch()
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)

    def watch(self):
        """Until the end: a service that ends stays ended or is started again as was asked for; else the cloud ends.

        Once somebody has stopped a service, others may end that need it: they are started again, as a service manager would.
        """
        stopped, starts = set(), None
        while not self.ending:
            for name, process in list(self.running.items()):
                if process.poll() is None:
                    continue
                if (layout.STOP / name).exists():
                    stopped.add(name)
                    starts = starts or collections.Counter()
                    (layout.PIDS / name).unlink(missing_ok=True)
                    continue
                if name in stopped:
                    stopped.remove(name)
                    self.start(name)
                    continue
                wanted = layout.RESTART / name
                if not wanted.exists():
                    if starts is not None and starts[name] < STARTS:
                        starts[name] += 1
                        time.sleep(START_PAUSE)
                        self.start(name)
                        continue
                    raise CloudError(f"{name} ended by itself; {self.last_words(name)}")
                self.start(name)
                wanted.unlink()
            time.sleep(TICK)


def main():
    """Runs until SIGTERM."""
    keeper = Keeper()

    def terminate(*_):
        keeper.ending = True

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, terminate)
    try:
        keeper.up()
        keeper.watch()
    except (CloudError, OSError, subprocess.SubprocessError) as error:
        print(error, flush=True)
        keeper.say(f"failed: {error}")
        return 1
    finally:
        # The rest ends with this process. Nobody waits for it to do so in order: all that it knows is removed.
        layout.READY.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
