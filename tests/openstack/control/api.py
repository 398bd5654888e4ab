# SPDX-License-Identifier: Apache-2.0
"""A small client of the cloud's own interfaces."""

import json
import urllib.error
import urllib.request

from control import layout
from control.errors import CloudError

SECONDS = 60
SERVICES = {
    "identity": layout.AUTH_URL,
    "volume": f"http://127.0.0.1:{layout.PORTS['cinder']}/v3/{{project}}",
    "compute": f"http://127.0.0.1:{layout.PORTS['nova']}/v2.1",
}
VERSIONS = {"volume": "volume 3.71", "compute": "compute 2.90"}
# On loopback, whatever the environment says of proxies.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Session:
    """One user in one project."""

    def __init__(self, user, password, project):
        domain = {"name": "Default"}
        identity = {"methods": ["password"], "password": {"user": {"name": user, "password": password, "domain": domain}}}
        body = {"auth": {"identity": identity, "scope": {"project": {"name": project, "domain": domain}}}}
        self.headers = {}
        self.project = self.user = None
        token, headers = self.exchange("POST", "identity", "/auth/tokens", body)
        self.headers["X-Auth-Token"] = headers["X-Subject-Token"]
        self.project, self.user = token["token"]["project"]["id"], token["token"]["user"]["id"]

    def exchange(self, method, service, path, body=None):
        """Sends a request; answers body and headers."""
        url = SERVICES[service].format(project=self.project) + path
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        if service in VERSIONS:
            headers["OpenStack-API-Version"] = VERSIONS[service]
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with OPENER.open(request, timeout=SECONDS) as answer:
                text = answer.read()
                return (json.loads(text) if text else None), answer.headers
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")[:500]
            raise CloudError(f"{method} {url}: {error.code} {reason}") from None
        except (OSError, ValueError) as error:
            raise CloudError(f"{method} {url}: {error}") from None

    def get(self, service, path):
        """The body of an answer to GET."""
        return self.exchange("GET", service, path)[0]

    def post(self, service, path, body):
        """The body of an answer to POST."""
        return self.exchange("POST", service, path, body)[0]

    def put(self, service, path, body=None):
        """The body of an answer to PUT."""
        return self.exchange("PUT", service, path, body)[0]


def admin():
    """The administrator, whom only this program is."""
    return Session("admin", layout.ADMIN_PASSWORD, "admin")


def member():
    """The user of the suites, a member of their project."""
    return Session(layout.MEMBER, layout.MEMBER_PASSWORD, layout.PROJECT)
