# SPDX-License-Identifier: Apache-2.0
"""What Nova asks an image service and a network service for, where a server has one image and no network."""

import json
import os

IMAGE = {
    "id": os.environ["IMAGE_ID"],
    "name": "nothing",
    "status": "active",
    "visibility": "public",
    "container_format": "bare",
    "disk_format": "raw",
    "size": 1 << 20,
    "min_disk": 0,
    "min_ram": 0,
    "protected": False,
    "tags": [],
    "owner": "nobody",
    "checksum": None,
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
}
SCHEMA = {"name": "image", "properties": {name: {} for name in IMAGE}}


def answer(path):
    """The body for a path, or nothing where there is nothing."""
    if path == "/":
        links = [{"rel": "self", "href": "/v2/"}]
        return {"versions": [{"id": name, "status": "CURRENT", "links": links} for name in ("v2.0", "v2.9")]}
    last = path.rstrip("/").rsplit("/", 1)[-1].removesuffix(".json").replace("-", "_")
    if path.startswith("/v2/schemas/"):
        return SCHEMA
    if path.startswith("/v2/images/"):
        return IMAGE if last == IMAGE["id"].replace("-", "_") else None
    return {last: []}


def application(environ, start_response):
    """The services' WSGI application."""
    body = answer(environ["PATH_INFO"] or "/")
    status = "404 Not Found" if body is None else "200 OK"
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
