# SPDX-License-Identifier: Apache-2.0
"""Packs an image, described as JSON on the standard input, without a container engine.

usage: pack.py [--layer] FILE

Writes the archive of `docker save`, which containerd imports, or the image's only layer.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "config/release"))
sys.dont_write_bytecode = True

import oci  # noqa: E402

STANDARD = ("dev", "etc", "proc", "run", "sys", "var")


def layer(entries: list[dict]) -> bytes:
    """The tar of an image's files."""
    tree: dict = dict.fromkeys(STANDARD) | {"tmp": oci.Directory(0o1777)}
    for entry in entries:
        match entry:
            case {"File": {"source": source, "path": path}}:
                source = pathlib.Path(source)
                tree[path.strip("/")] = oci.File(source.read_bytes(), executable=bool(source.stat().st_mode & 0o100))
            case {"Link": {"path": path, "target": target}}:
                tree[path.strip("/")] = oci.Link(target)
            case {"Directory": {"path": path}}:
                tree.setdefault(path.strip("/"), None)
    return oci.archive(tree, 0)


def docker_archive(image: dict, content: bytes) -> bytes:
    """An archive of one image with one layer."""
    description = oci.encoded(oci.description(image["architecture"], [content], image["config"]))
    config, name = (oci.digest(data).removeprefix("sha256:") for data in (description, content))
    manifest = [{"Config": f"{config}.json", "RepoTags": [image["name"]], "Layers": [f"{name}/layer.tar"]}]
    files = {f"{config}.json": description, f"{name}/layer.tar": content, "manifest.json": oci.encoded(manifest)}
    return oci.archive({path: oci.File(data) for path, data in files.items()}, 0, directories=False)


def main(arguments: list[str]) -> None:
    image = json.load(sys.stdin)
    content = layer(image["entries"])
    is_whole = arguments[0] != "--layer"
    pathlib.Path(arguments[-1]).write_bytes(docker_archive(image, content) if is_whole else content)


if __name__ == "__main__":
    main(sys.argv[1:])
