# SPDX-License-Identifier: Apache-2.0
"""What the database holds when it is prepared: users, the catalog, volume types, servers."""

import json

from control import api, layout
from control.errors import CloudError
from control.waiting import wait_for

SERVER_SECONDS = 90


def identity():
    """Users and endpoints, before the services start that ask for them."""
    session = api.admin()
    roles = {role["name"]: role["id"] for role in session.get("identity", "/roles")["roles"]}
    if "service" not in roles:
        roles["service"] = session.post("identity", "/roles", {"role": {"name": "service"}})["role"]["id"]
    project = session.post("identity", "/projects", {"project": {"name": "service", "domain_id": "default"}})["project"]["id"]
    for name in ("cinder", "nova", "placement", "neutron"):
        user = _user(session, name, layout.SERVICE_PASSWORD)
        for role in ("admin", "service"):
            session.put("identity", f"/projects/{project}/users/{user}/roles/{roles[role]}")
    ports = {name: f"http://127.0.0.1:{port}" for name, port in layout.PORTS.items()}
    endpoints = {
        "block-storage": ports["cinder"] + "/v3/%(project_id)s",
        "compute": ports["nova"] + "/v2.1",
        "placement": ports["placement"],
        "network": ports["stubs"],
        "image": ports["stubs"],
    }
    for kind, url in endpoints.items():
        service = session.post("identity", "/services", {"service": {"name": kind, "type": kind}})["service"]["id"]
        for interface in ("public", "internal", "admin"):
            endpoint = {"service_id": service, "interface": interface, "url": url, "region_id": layout.REGION}
            session.post("identity", "/endpoints", {"endpoint": endpoint})
    project = session.post("identity", "/projects", {"project": {"name": layout.PROJECT, "domain_id": "default"}})["project"]["id"]
    user = _user(session, layout.MEMBER, layout.MEMBER_PASSWORD)
    session.put("identity", f"/projects/{project}/users/{user}/roles/{roles['member']}")
    _user(session, layout.TRUSTEE, layout.TRUSTEE_PASSWORD)


def _user(session, name, password):
    user = {"name": name, "password": password, "domain_id": "default"}
    return session.post("identity", "/users", {"user": user})["user"]["id"]


def volume_types():
    """Volume types with QoS, and the type of groups whose snapshots are of one moment."""
    session = api.admin()
    types = {}
    for name, specs in layout.TYPES.items():
        body = {"name": name, "os-volume-type-access:is_public": True, "extra_specs": specs}
        types[name] = session.post("volume", "/types", {"volume_type": body})["volume_type"]["id"]
    for name, specs in layout.QOS.items():
        body = {"name": f"of-{name}", "consumer": "front-end", **specs}
        qos = session.post("volume", "/qos-specs", {"qos_specs": body})["qos_specs"]["id"]
        session.get("volume", f"/qos-specs/{qos}/associate?vol_type_id={types[name]}")
    group_type = session.post("volume", "/group_types", {"group_type": {"name": layout.GROUP_TYPE, "is_public": True}})
    specs = {"group_specs": {"consistent_group_snapshot_enabled": "<is> True"}}
    session.post("volume", f"/group_types/{group_type['group_type']['id']}/group_specs", specs)


def compute_zones():
    """Nova's zones: a host is in one by an aggregate."""
    session = api.admin()
    for host, zone in layout.COMPUTES.items():
        aggregate = {"name": zone, "availability_zone": zone}
        aggregate = session.post("compute", "/os-aggregates", {"aggregate": aggregate})["aggregate"]["id"]
        session.post("compute", f"/os-aggregates/{aggregate}/action", {"add_host": {"host": host}})


def servers():
    """Servers with nothing on them, of the suites' project."""
    flavor = {"name": "tiny", "vcpus": 1, "ram": 64, "disk": 1}
    flavor = api.admin().post("compute", "/flavors", {"flavor": flavor})["flavor"]["id"]
    session = api.member()
    ids = []
    for name, zone in layout.SERVERS.items():
        server = {"name": name, "availability_zone": zone, "flavorRef": flavor, "imageRef": layout.IMAGE_ID, "networks": "none"}
        ids.append(session.post("compute", "/servers", {"server": server})["server"]["id"])

    def active():
        states = [session.get("compute", f"/servers/{server_id}")["server"] for server_id in ids]
        failed = [state.get("fault") for state in states if state["status"] == "ERROR"]
        if failed:
            raise CloudError(f"Nova could not make the servers: {failed}")
        return all(state["status"] == "ACTIVE" for state in states)

    wait_for("the servers to be ACTIVE", SERVER_SECONDS, active)


def credential():
    """The application credential, with the documented access rules, and the cloud.conf with it, for this user alone to read."""
    session = api.member()
    rules = json.loads(layout.ACCESS_RULES.read_text())
    body = {"application_credential": {"name": "csi-driver", "description": "of the tests", "access_rules": rules}}
    made = session.post("identity", f"/users/{session.user}/application_credentials", body)["application_credential"]
    lines = [
        "[Global]",
        f'auth-url = "{layout.AUTH_URL}"',
        f'application-credential-id = "{made["id"]}"',
        f'application-credential-secret = "{made["secret"]}"',
        f'region = "{layout.REGION}"',
        "",
        "[Metadata]",
        "search-order = metadataService",
        "",
    ]
    _write_privately("cloud.conf", lines)


def logins():
    """Who a test may be besides: the member and the trustee, by their passwords."""
    who = {"member": (layout.MEMBER, layout.MEMBER_PASSWORD), "trustee": (layout.TRUSTEE, layout.TRUSTEE_PASSWORD)}
    for name, (user, password) in who.items():
        lines = [
            "[Global]",
            f'auth-url = "{layout.AUTH_URL}"',
            f'username = "{user}"',
            f'password = "{password}"',
            'domain-name = "Default"',
            f'tenant-name = "{layout.PROJECT}"',
            f'region = "{layout.REGION}"',
            "",
        ]
        _write_privately(f"{name}.conf", lines)


def _write_privately(name, lines):
    path = layout.RUN / name
    path.touch(mode=0o600)
    path.write_text("\n".join(lines))


def describe():
    """Everything that a test needs to know, but no secret."""
    session = api.member()
    servers = {}
    for server in sorted(session.get("compute", "/servers/detail")["servers"], key=lambda server: server["name"]):
        by_id = str(layout.SERVERS_DIR / server["name"] / "by-id")
        told = {"id": server["id"], "name": server["name"], "by_id": by_id}
        servers.setdefault(server["OS-EXT-AZ:availability_zone"], []).append(told)
    first, far = sorted(set(layout.COMPUTES.values()))
    return {
        "auth_url": layout.AUTH_URL,
        "ports": {name: layout.PORTS[name] for name in ("keystone", "cinder", "nova")},
        "region": layout.REGION,
        "project_id": session.project,
        "cloud_conf": str(layout.RUN / "cloud.conf"),
        "member_conf": str(layout.RUN / "member.conf"),
        "trustee_conf": str(layout.RUN / "trustee.conf"),
        "servers": servers[first],
        "far_servers": servers[far],
        "zones": sorted(set(layout.BACKENDS.values())),
        "volume_types": list(layout.TYPES),
        "roles": layout.ROLES,
        "group_type": layout.GROUP_TYPE,
        "run": str(layout.RUN),
        "log": str(layout.LOG),
    }


def write_ready():
    """Tells that the cloud is up, and what it is."""
    part = layout.READY.with_suffix(".part")
    part.write_text(json.dumps(describe(), indent=1) + "\n")
    part.replace(layout.READY)


def is_ready(since):
    """Whether volumes can be made and attached: every backend reported to the scheduler, and every worker since the start."""
    session = api.admin()
    pools = {pool["name"].split("@")[1].split("#")[0] for pool in session.get("volume", "/scheduler-stats/get_pools")["pools"]}
    if not pools.issuperset(layout.BACKENDS):
        return False
    workers = {
        "cinder-scheduler": 1,
        "cinder-volume": len(layout.BACKENDS),
        "cinder-backup": 1,
        "nova-compute": len(layout.COMPUTES),
        "nova-conductor": 1,
        "nova-scheduler": 1,
    }
    for kind in ("volume", "compute"):
        for service in session.get(kind, "/os-services")["services"]:
            if service["binary"] in workers and service["state"] == "up" and (service["updated_at"] or "")[:19] >= since:
                workers[service["binary"]] -= 1
    return all(missing <= 0 for missing in workers.values())
