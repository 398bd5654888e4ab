# SPDX-License-Identifier: Apache-2.0
"""What openstacksdk makes of a clouds.yaml.

Reads one JSON object per line from standard input, {"file": PATH, "cloud": NAME}, and writes one per line: the configuration, or
{"error": REASON}. The login is the body of the request for a token, which is never sent, or an error of its own.

keystoneauth since 5.12 refuses keys in `auth` that the chosen type of login does not know; before, it skipped them. They are skipped
here, so that the rest of such files is compared, too.
"""

import json
import sys
import warnings

import openstack.config
from keystoneauth1 import loading
from keystoneauth1.identity.generic import base as generic

SERVICES = {"block-storage": "block_storage", "compute": "compute"}


class Recorder:
    """Stands in for a session, and keeps the request for a token."""

    def post(self, url, json=None, **_):
        self.url, self.body = url, json
        raise StopIteration


class Config(openstack.config.OpenStackConfig):
    """Keeps the login apart from the other settings, so that an error in one does not hide the others."""

    def _validate_auth(self, config, loader):
        config = super()._validate_auth(config, loader)
        known = {option.dest for option in loader.get_options()}
        self.login = {key: value for key, value in config["auth"].items() if key in known}
        self.loader = loader
        config["auth"] = {"auth_url": "unused"}
        return config

    def _get_auth_loader(self, config):
        loader = super()._get_auth_loader(config)
        loader.load_from_options = lambda **_: None
        return loader


def login(name, options):
    """The URL and the body of the request for a token."""
    plugin = loading.get_plugin_loader(name).load_from_options(**options)
    recorder = Recorder()
    if isinstance(plugin, generic.BaseGenericPlugin):
        plugin = plugin.create_plugin(recorder, (3, 0), plugin.auth_url)
    try:
        plugin.get_auth_ref(recorder)
    except StopIteration:
        pass
    json.dumps(recorder.body)
    identity, scope = recorder.body["auth"]["identity"], recorder.body["auth"].get("scope", {})
    users = [part.get("user", {}) for part in identity.values() if isinstance(part, dict)]
    if identity["methods"] == ["password"] and not {"id", "name"} & set(users[0]):
        raise ValueError("Keystone refuses a user without id and name")
    for named in [*users, scope.get("project", {})]:
        if "name" in named and "domain" not in named:
            raise ValueError("Keystone refuses a name without its domain")
    return {"auth_url": recorder.url.removesuffix("/auth/tokens"), "auth": recorder.body["auth"]}


def read(file, cloud):
    config = Config(config_files=[file], secure_files=[], vendor_files=[], load_envvars=False)
    region = config.get_one(cloud=cloud)
    verify, cert = region.get_requests_verify_args()
    try:
        answer = login(region.config["auth_type"], config.login)
    except Exception as error:  # Whatever it is, openstacksdk cannot log in.
        answer = {"login_error": f"{type(error).__name__}: {error}"}

    def only(value):
        return value[0] if isinstance(value, list) and len(value) == 1 else value

    services = {
        name: {
            "region": region.get_region_name(service) or None,
            "interface": only(region.get_interface(service)),
            "endpoint": region.get_endpoint(service),
        }
        for service, name in SERVICES.items()
    }
    return answer | {"verify": verify, "cert": list(cert) if isinstance(cert, tuple) else cert, "services": services}


def main():
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        query = json.loads(line)
        try:
            answer = read(query["file"], query["cloud"])
        except Exception as error:  # Whatever it is, openstacksdk does not use the file.
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
