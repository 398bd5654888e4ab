# SPDX-License-Identifier: Apache-2.0
"""The programs of the cloud: how each is started, and their configuration files."""

import os
import pathlib
import shutil
import string
import subprocess

from control import layout
from control.errors import CloudError
from control.install import PATH

ERLANG = pathlib.Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def environment():
    """What every service finds in its environment."""
    run, ports = layout.RUN, layout.PORTS
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "TERM")}
    return kept | {
        "PATH": f"{layout.venv()}/bin:{PATH}",
        "HOME": str(run / "home"),
        "PYTHONPATH": str(layout.HERE / "services"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VOLUMES_DIR": str(run / "volumes"),
        "SERVERS_DIR": str(layout.SERVERS_DIR),
        "IMAGE_ID": layout.IMAGE_ID,
        "OS_KEYSTONE_CONFIG_FILES": str(run / "conf/keystone.conf"),
        "OS_PLACEMENT_CONFIG_DIR": str(run / "conf"),
        "OS_NOVA_CONFIG_DIR": str(run / "conf"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(ports["epmd"]),
        "RABBITMQ_NODENAME": "openstack@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(ports["rabbitmq"]),
        "RABBITMQ_DIST_PORT": str(ports["rabbitmq-dist"]),
        "RABBITMQ_MNESIA_BASE": str(run / "rabbitmq"),
        "RABBITMQ_LOG_BASE": str(layout.LOG),
        "RABBITMQ_PID_FILE": str(run / "rabbitmq/pid"),
        "RABBITMQ_CONFIG_FILE": str(run / "conf/no-rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(run / "conf/no-plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


def database_command():
    """The database; durability is for others."""
    data = str(layout.RUN / "mariadb")
    return [
        shutil.which("mariadbd", path=PATH),
        "--no-defaults",
        "--user=root",
        f"--datadir={data}",
        "--bind-address=127.0.0.1",
        f"--port={layout.PORTS['mariadb']}",
        # Relative to the data directory: the path of a socket has a limit.
        "--socket=socket",
        "--skip-log-bin",
        # Written at each commit, so that a copy of the files is whole; not flushed to the disk.
        "--innodb-flush-log-at-trx-commit=2",
        "--innodb-buffer-pool-size=128M",
        "--max-connections=500",
        "--skip-name-resolve",
    ]


def commands():
    """Every service's command by name, in the order in which they are started."""
    binaries, conf, ports = layout.venv() / "bin", layout.RUN / "conf", layout.PORTS
    python = str(binaries / "python")
    serve = [python, str(layout.HERE / "services/serve.py")]
    cinder = ["--config-file", str(conf / "cinder.conf")]
    nova = ["--config-file", str(conf / "nova.conf")]
    compute = [python, str(layout.HERE / "services/nova_compute.py"), *nova]
    return {
        "mariadb": database_command(),
        "epmd": [shutil.which("epmd", path=PATH)],
        "rabbitmq": [str(ERLANG)] if ERLANG.exists() else [shutil.which("rabbitmq-server", path=PATH)],
        "keystone": [*serve, "keystone.wsgi.api", str(ports["keystone"])],
        "stubs": [*serve, "stubs", str(ports["stubs"])],
        "placement": [*serve, "placement.wsgi.api", str(ports["placement"])],
        "nova-conductor": [python, str(binaries / "nova-conductor"), *nova],
        "nova-scheduler": [python, str(binaries / "nova-scheduler"), *nova],
        "nova-compute": [*compute, "--log-file", "nova-compute.log"],
        "nova-compute-far": [*compute, "--config-file", str(conf / "nova-far.conf")],
        "cinder-scheduler": [python, str(binaries / "cinder-scheduler"), *cinder],
        "cinder-volume": [python, str(binaries / "cinder-volume"), *cinder],
        "cinder-backup": [python, str(binaries / "cinder-backup"), *cinder],
        "nova-api": [*serve, "nova.wsgi.osapi_compute", str(ports["nova"])],
        "cinder-api": [*serve, "cinder.wsgi.api", str(ports["cinder"]), *cinder],
    }


# Started first; the others need them.
BASE = ("mariadb", "epmd", "rabbitmq", "keystone", "stubs")
# What answers on a port of its own.
LISTENING = {
    "epmd": "epmd",
    "keystone": "keystone",
    "stubs": "stubs",
    "placement": "placement",
    "nova-api": "nova",
    "cinder-api": "cinder",
    "rabbitmq": "rabbitmq",
    "mariadb": "mariadb",
}


def write_configuration():
    """Makes the directories and the files in them."""
    run, ports = layout.RUN, layout.PORTS
    for name in ("conf", "home", "rabbitmq", "restart", "stop", "pids", "volumes", "cinder/backups", "cinder/lock", "nova/lock", "nova-far", "servers"):
        (run / name).mkdir(parents=True, exist_ok=True)
    credentials = "\n".join(
        [
            f"www_authenticate_uri = {layout.AUTH_URL}",
            f"auth_url = {layout.AUTH_URL}",
            "auth_type = password",
            f"password = {layout.SERVICE_PASSWORD}",
            "project_name = service",
            "user_domain_name = Default",
            "project_domain_name = Default",
        ]
    )
    sections = [
        f"[{name}]\nvolume_driver = file_volumes.FileDriver\nvolume_backend_name = {name}\nbackend_availability_zone = {zone}"
        for name, zone in layout.BACKENDS.items()
    ]
    values = {
        "run": run,
        "log": layout.LOG,
        "venv": layout.venv(),
        "database": f"mysql+pymysql://root@127.0.0.1:{ports['mariadb']}",
        "transport": f"rabbit://guest:guest@127.0.0.1:{ports['rabbitmq']}/",
        "credentials": credentials,
        "region": layout.REGION,
        "backends": ",".join(layout.BACKENDS),
        "backend_sections": "\n".join(sections),
        "default_type": next(iter(layout.TYPES)),
    }
    for template in (layout.HERE / "conf").iterdir():
        target = run / "conf" / template.name
        target.write_text(string.Template(template.read_text()).substitute(values))
        target.chmod(0o600)
    # Nova looks for it beside its configuration.
    shutil.copy(layout.venv() / "etc/nova/api-paste.ini", run / "conf/api-paste.ini")


def make_databases(step):
    """Fills an empty data directory: the tables of every service, side by side."""
    for tool in ("mariadbd", "mariadb-install-db", "epmd"):
        if not shutil.which(tool, path=PATH):
            raise CloudError(f"{tool} is not installed")
    conf, binaries = layout.RUN / "conf", layout.venv() / "bin"
    keystone = [binaries / "keystone-manage", "--config-file", conf / "keystone.conf"]
    cinder = [binaries / "cinder-manage", "--config-file", conf / "cinder.conf"]
    nova = [binaries / "nova-manage", "--config-file", conf / "nova.conf"]
    bootstrap = [*keystone, "bootstrap", "--bootstrap-region-id", layout.REGION]
    for kind in ("admin", "internal", "public"):
        bootstrap += [f"--bootstrap-{kind}-url", layout.AUTH_URL + "/"]
    cell0 = f"mysql+pymysql://root@127.0.0.1:{layout.PORTS['mariadb']}/nova_cell0"
    owner = ["--keystone-user", "root", "--keystone-group", "root"]
    lines = {
        "keystone-tables": [
            [*keystone, "fernet_setup", *owner],
            [*keystone, "credential_setup", *owner],
            [*keystone, "db_sync"],
            bootstrap,
        ],
        "cinder-tables": [[*cinder, "db", "sync"]],
        "placement-tables": [[binaries / "placement-manage", "--config-file", conf / "placement.conf", "db", "sync"]],
        "nova-tables": [
            [*nova, "api_db", "sync"],
            [*nova, "cell_v2", "map_cell0", "--database_connection", cell0],
            [*nova, "db", "sync"],
            [*nova, "cell_v2", "create_cell", "--name", "cell1"],
        ],
    }
    (layout.RUN / "keystone/fernet").mkdir(parents=True)
    (layout.RUN / "keystone/credential").mkdir(parents=True)
    running = {}
    variables = environment() | {"OS_BOOTSTRAP_PASSWORD": layout.ADMIN_PASSWORD}
    for name, steps in lines.items():
        script = " && ".join(" ".join(f"'{word}'" for word in command) for command in steps)
        log = open(layout.LOG / f"{name}.log", "wb")  # noqa: SIM115: the process keeps it
        running[name] = subprocess.Popen(["sh", "-c", script], env=variables, stdout=log, stderr=log)
    step(running)


def install_database():
    """An empty data directory."""
    data = layout.RUN / "mariadb"
    command = [shutil.which("mariadb-install-db", path=PATH), "--no-defaults", "--user=root", f"--datadir={data}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise CloudError(f"mariadb-install-db failed: {(done.stdout + done.stderr)[-2000:]}")


def create_databases():
    """The databases that the services fill."""
    statements = "".join(f"CREATE DATABASE {name};" for name in layout.DATABASES)
    script = (
        "import pymysql, sys\n"
        "c = pymysql.connect(host='127.0.0.1', port=int(sys.argv[1]), user='root').cursor()\n"
        "for s in filter(None, sys.argv[2].split(';')): c.execute(s)\n"
    )
    python = str(layout.venv() / "bin/python")
    subprocess.run([python, "-c", script, str(layout.PORTS["mariadb"]), statements], check=True, timeout=30)
