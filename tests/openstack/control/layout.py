# SPDX-License-Identifier: Apache-2.0
"""Where everything is: directories, ports, names."""

import hashlib
import os
import pathlib
import platform

HERE = pathlib.Path(__file__).resolve().parent.parent
# OPENSTACK=2024.1 chooses an older release than constraints.txt has.
RELEASE = os.environ.get("OPENSTACK", "")
# What the product asks for, and no more, is what the suites' credential may do.
ACCESS_RULES = HERE.parent.parent / "config" / "openstack" / "access-rules.json"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cinder-csi"
RUN = CACHE / "openstack-run"
LOG = CACHE / "openstack-log"
FAILED_LOG = CACHE / "openstack-log-failed"
LOCK = CACHE / "openstack.lock"
# The release of the cloud that runs; empty for the usual one.
RUNNING = RUN / "release"
# Written last when the cloud starts, removed first when it ends.
READY = RUN / "ready.json"
# What the prepared database belongs with.
KEPT = ("mariadb", "keystone", "servers", "nova", "nova-far")
# Process id of the keeper as the machine counts, and the time of its start.
KEEPER = RUN / "keeper"
# One line per finished step, or the reason why the cloud could not be started.
PROGRESS = RUN / "progress"
# A file with a service's name in here asks the keeper to start it again when it ends.
RESTART = RUN / "restart"
# A file with a service's name in here tells the keeper to leave it ended.
STOP = RUN / "stop"
PIDS = RUN / "pids"
SERVERS_DIR = RUN / "servers"

# Below the range that the kernel takes for outgoing connections, so that only another listener can be in the way.
PORTS = {
    "keystone": 28500,
    "cinder": 28776,
    "nova": 28774,
    "placement": 28778,
    "stubs": 28696,
    "mariadb": 28306,
    "rabbitmq": 28672,
    "rabbitmq-dist": 28673,
    "epmd": 28369,
}
REGION = "RegionOne"
AUTH_URL = f"http://127.0.0.1:{PORTS['keystone']}/v3"
DATABASES = ("keystone", "cinder", "placement", "nova_api", "nova", "nova_cell0")

# Nothing outside loopback sees these; the suites log in with an application credential that is made anew with the database.
SERVICE_PASSWORD = "of-a-service"
ADMIN_PASSWORD = "of-the-admin"
MEMBER_PASSWORD = "of-a-member"
PROJECT = "cluster"
MEMBER = "csi"
# A user without a role, on whom the member may bestow a trust.
TRUSTEE = "csi-trustee"
TRUSTEE_PASSWORD = "of-a-trustee"

# Cinder's backends: name and availability zone. A volume can be retyped from the first to the second, which migrates it.
BACKENDS = {"one": "nova", "two": "nova", "far": "zone-far"}
# Volume types with their extra specs; the first is the default.
TYPES = {
    "fast": {"volume_backend_name": "one"},
    "slow": {"volume_backend_name": "one"},
    "multi": {"volume_backend_name": "one", "multiattach": "<is> True"},
    "other": {"volume_backend_name": "two"},
    "far": {"volume_backend_name": "far"},
    # Of any backend, and so in every zone; a volume of the first is retyped to the second where it is.
    "any": {},
    "archive": {},
}
# What a test takes them for.
ROLES = {"anywhere": "any", "archive": "archive", "multiattach": "multi"}
# QoS of a type.
QOS = {"slow": {"total_iops_sec": "200"}}
GROUP_TYPE = "consistent"
# Nova's hosts, each with a nova-compute and a zone, and the servers, each made in a zone.
COMPUTES = {"machine": "nova", "far": "zone-far"}
SERVERS = {"node-0": "nova", "node-1": "nova", "node-far": "zone-far"}
IMAGE_ID = "5b0dd5b2-6a5f-4b5c-9c5b-6a1f6cd0a001"


def digest(paths):
    """A key of sixteen digits over files and this machine's Python."""
    total = hashlib.sha256(platform.python_version().encode())
    for path in sorted(paths):
        total.update(pathlib.Path(os.path.relpath(path, HERE)).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def requirements():
    """What pip installs from."""
    return [HERE / "requirements.txt", constraints()]


def constraints():
    """The versions of the release that is chosen."""
    return HERE / (f"constraints-{RELEASE}.txt" if RELEASE else "constraints.txt")


def releases():
    """The older releases that can be chosen."""
    return sorted(path.stem.removeprefix("constraints-") for path in HERE.glob("constraints-*.txt"))


def environment():
    """The directory of the Python environment; its name changes with the requirements."""
    return CACHE / f"openstack-{digest(requirements())}"


def prepared():
    """The prepared database; its name changes with everything that shapes it, but not with what only runs on it."""
    ours = ("control/layout.py", "control/services.py", "control/setup.py", "services/loop_servers.py")
    shaping = [*requirements(), ACCESS_RULES, *(HERE / "conf").iterdir(), *(HERE / name for name in ours)]
    return environment() / f"prepared-{digest(shaping)}"


def venv():
    """The Python environment."""
    return environment() / "venv"
