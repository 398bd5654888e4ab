# SPDX-License-Identifier: Apache-2.0
"""Serves the WSGI application of a module: serve.py MODULE PORT [ARGUMENTS of the module].

Where a release of OpenStack is too old to have the module, the function serves that built the application then.
"""

import importlib
import importlib.util
import os
import pathlib
import sys

import waitress

# Modules of 2025.1 and later, and where 2024.1 has the same.
OLDER = {
    "keystone.wsgi.api": ("keystone.server.wsgi", "initialize_public_application"),
    "placement.wsgi.api": ("placement.wsgi", "init_application"),
    "nova.wsgi.osapi_compute": ("nova.api.openstack.compute.wsgi", "init_application"),
    "cinder.wsgi.api": ("cinder.wsgi.wsgi", "initialize_application"),
}


def exists(name):
    """Whether there is a module of this name. None is imported for that: some change how threads work."""
    package, *rest = name.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not rest:
        return spec is not None
    places = spec.submodule_search_locations or []
    return any(pathlib.Path(place, *rest).with_suffix(".py").exists() for place in places)


def find_application(name):
    """The application of a module, or what an older release has in its place."""
    if exists(name) or name not in OLDER:
        return importlib.import_module(name).application
    older, function = OLDER[name]
    # The threads here are those of the system.
    os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "yes"
    return getattr(importlib.import_module(older), function)()


if __name__ == "__main__":
    module, port = sys.argv[1], int(sys.argv[2])
    sys.argv = [module, *sys.argv[3:]]
    waitress.serve(find_application(module), host="127.0.0.1", port=port, threads=8)
