# SPDX-License-Identifier: Apache-2.0
"""An OCI image layout, written so that the same content gives the same digests."""

import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import tarfile

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
REF_NAME = "org.opencontainers.image.ref.name"


@dataclasses.dataclass(frozen=True)
class File:
    """A file of an archive."""

    content: bytes
    executable: bool = False


@dataclasses.dataclass(frozen=True)
class Link:
    """A symbolic link of an archive."""

    target: str


@dataclasses.dataclass(frozen=True)
class Directory:
    """A directory of an archive."""

    mode: int = 0o755


def archive(tree: dict[str, File | Link | Directory | None], time: int, directories: bool = True) -> bytes:
    """A tar of these paths, sorted, of one owner and one time; `None` is a directory. Directories above an entry come with it."""
    paths = {path.strip("/"): entry for path, entry in tree.items()}
    if directories:
        for path in list(paths):
            for parent in pathlib.PurePosixPath(path).parents:
                if str(parent) != ".":
                    paths.setdefault(str(parent), None)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(paths):
            entry, info = paths[path], tarfile.TarInfo(path)
            info.mtime, info.uname, info.gname = time, "", ""
            if isinstance(entry, Link):
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
                tar.addfile(info)
            elif isinstance(entry, File):
                info.size, info.mode = len(entry.content), 0o755 if entry.executable else 0o644
                tar.addfile(info, io.BytesIO(entry.content))
            else:
                info.type, info.mode = tarfile.DIRTYPE, (entry or Directory()).mode
                tar.addfile(info)
    return out.getvalue()


def compressed(data: bytes) -> bytes:
    """The data in gzip's form, without a name or a time."""
    return gzip.compress(data, compresslevel=9, mtime=0)


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def encoded(value: object) -> bytes:
    """JSON as it is hashed: keys sorted, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def description(architecture: str, layers: list[bytes], config: dict) -> dict:
    """The configuration of an image of one platform, whose layers are tars."""
    rootfs = {"type": "layers", "diff_ids": [digest(layer) for layer in layers]}
    return {"architecture": architecture, "os": "linux", "config": config, "rootfs": rootfs}


class Layout:
    """A folder in the form of the OCI Image Layout Specification 1.1."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.names: list[dict] = []
        (folder / "blobs/sha256").mkdir(parents=True)

    def blob(self, data: bytes, media_type: str) -> dict:
        """Stores content, and returns its descriptor."""
        name = digest(data)
        (self.folder / "blobs/sha256" / name.removeprefix("sha256:")).write_bytes(data)
        return {"mediaType": media_type, "digest": name, "size": len(data)}

    def image(self, architecture: str, layers: list[bytes], config: dict, annotations: dict, created: str) -> dict:
        """Stores an image of one platform, whose layers are tars, and returns its descriptor."""
        described = description(architecture, layers, config | {"Labels": annotations}) | {
            "created": created,
            "history": [{"created": created, "created_by": "config/release/release"} for _ in layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(encoded(described), CONFIG),
            "layers": [self.blob(compressed(layer), LAYER) for layer in layers],
            "annotations": annotations,
        }
        return self.blob(encoded(manifest), MANIFEST) | {"platform": {"architecture": architecture, "os": "linux"}}

    def index(self, images: list[dict], annotations: dict) -> dict:
        """Stores the index of an image for several platforms, and returns its descriptor."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": images, "annotations": annotations}
        return self.blob(encoded(index), INDEX)

    def artifact(self, config: tuple[dict, str], layer: tuple[bytes, str], annotations: dict) -> dict:
        """Stores an artefact of one layer, and returns its descriptor."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(encoded(config[0]), config[1]),
            "layers": [self.blob(*layer)],
            "annotations": annotations,
        }
        return self.blob(encoded(manifest), MANIFEST)

    def name(self, reference: str, descriptor: dict) -> None:
        """Names what is stored, as in `registry/name:tag`."""
        self.names.append(descriptor | {"annotations": {REF_NAME: reference}})

    def finish(self) -> None:
        """Writes what makes the folder a layout."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.names}
        (self.folder / "index.json").write_bytes(encoded(index))
        (self.folder / "oci-layout").write_bytes(encoded({"imageLayoutVersion": "1.0.0"}))
