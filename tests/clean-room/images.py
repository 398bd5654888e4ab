# SPDX-License-Identifier: Apache-2.0
"""The product's programs as they are in the images that a command has packed."""

import itertools
import json
import struct
import tarfile

from errors import RoomError

INTERPRETER = 3
# The programs of this repository in each image.
PROGRAMS = {
    "cinder-csi-driver": ["/usr/bin/cinder-csi-driver"],
    "cinder-csi-operator": ["/usr/bin/cinder-csi-operator", "/usr/bin/kubectl-cinder_csi"],
}


def interpreter(program):
    """Whether an ELF program of 64 bits wants a loader, as one with shared libraries does."""
    if program[:5] != b"\x7fELF\x02":
        raise RoomError("it is no ELF program of 64 bits")
    table, size, count = struct.unpack_from("<Q", program, 32)[0], *struct.unpack_from("<HH", program, 54)
    kinds = (struct.unpack_from("<I", program, table + size * number)[0] for number in range(count))
    return INTERPRETER in kinds


def program(archive, path):
    """The content of a program in an image."""
    with tarfile.open(archive) as image:
        manifest = json.load(image.extractfile("manifest.json"))[0]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(layer)) as files:
                for name in (path.lstrip("/"), f".{path}"):
                    if name in files.getnames():
                        return files.extractfile(name).read()
    raise RoomError(f"{archive.name} has no {path}")


def check_static(directory):
    """Fails unless the operator's and the driver's images are in a directory and contain static programs."""
    told = []
    for name, paths in PROGRAMS.items():
        archives = sorted(directory.glob(f"{name}-*.tar"))
        if not archives:
            raise RoomError(f"no image of {name} was packed in {directory}")
        for archive, path in itertools.product(archives, paths):
            content = program(archive, path)
            if interpreter(content):
                raise RoomError(f"{path} in {archive.name} is not static")
            told.append(f"{path} {len(content) / 1e6:.1f} MB")
    return ", ".join(told)
