# SPDX-License-Identifier: Apache-2.0
"""Files of pinned Debian packages, for any architecture.

`packages.lock` has a line for each package: architecture, name and version, name and version of its source, and SHA-256 of its file. The
packages come through the sources of apt that this machine has, with lists of their own, and nothing of them is installed.
"""

import dataclasses
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.parse

import elf
from oci import File

LOCK = pathlib.Path(__file__).parent / "packages.lock"
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
# What the image lists name comes from these; what they need in turn is found by their headers.
ROOTS = ("e2fsprogs", "xfsprogs", "btrfs-progs", "util-linux", "ca-certificates", "base-files")
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
HEAD = """\
# Debian packages (bookworm) whose files are in the images: architecture, name, version, source, its version, SHA-256.
# `config/release/release lock` writes this file anew from the versions that apt offers.
"""


class DebianError(Exception):
    """A package or a file is not to be had; the text says which and what to do."""


@dataclasses.dataclass(frozen=True, order=True)
class Package:
    """A pinned package."""

    architecture: str
    name: str
    version: str
    source: str
    source_version: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class Unpacked:
    """The files of a package below a folder, and its control file."""

    root: pathlib.Path
    control: bytes


def locked(architecture: str) -> list[Package]:
    lines = (line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#"))
    packages = [Package(*words) for words in lines if words and words[0] == architecture]
    if not packages:
        raise DebianError(f"{LOCK} has no packages for {architecture}: run `config/release/release lock`")
    return packages


class Apt:
    """apt for one architecture, with lists of its own below `folder`."""

    def __init__(self, folder: pathlib.Path, architecture: str) -> None:
        self.folder = folder / f"apt-{architecture}"
        for part in ("lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        settings = {
            "Dir::State::lists": self.folder / "lists",
            "Dir::Cache": self.folder / "cache",
            "Dir::State::status": self.folder / "status",
            "APT::Architecture": architecture,
            "APT::Architectures::": architecture,
            # Root's downloads go to folders that the user _apt may not enter.
            "APT::Sandbox::User": "root",
            "Acquire::Retries": "3",
        }
        self.options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]

    def run(self, program: str, *words: str, folder: pathlib.Path | None = None) -> str:
        command = [program, "-q", *self.options, *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise DebianError(f"{program} {' '.join(words[:4])} failed: {done.stderr.strip()[-800:]}")
        return done.stdout

    def update(self) -> None:
        self.run("apt-get", "update")

    def download(self, package: str, folder: pathlib.Path) -> pathlib.Path:
        """Fetches `name=version` or `name`."""
        self.run("apt-get", "download", package, folder=folder)
        return next(folder.glob("*.deb"))


def fetch(package: Package, cache: pathlib.Path, apt: Apt) -> pathlib.Path:
    """The package's file, from the cache or through apt, and only with the sum of the lock."""
    known = cache / f"{package.sha256}.deb"
    if known.exists() and sha256(known) == package.sha256:
        return known
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        try:
            found = apt.download(f"{package.name}={package.version}", pathlib.Path(folder))
        except DebianError:
            # Without lists, or with old ones.
            apt.update()
            try:
                found = apt.download(f"{package.name}={package.version}", pathlib.Path(folder))
            except DebianError as error:
                raise DebianError(
                    f"{error}\nThe images are made of Debian 12 (bookworm). Where apt offers another version of {package.name} by now, run "
                    "`config/release/release lock`, look at the difference and commit it"
                ) from error
        if (sum_ := sha256(found)) != package.sha256:
            raise DebianError(f"{package.name} {package.version} for {package.architecture} has SHA-256 {sum_}, and {LOCK.name} says {package.sha256}")
        os.replace(found, known)
    return known


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def canonical(path: str) -> str:
    """The path as it is since /bin, /sbin and /lib are links below /usr."""
    return re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", path)


class Files:
    """The files of some packages, with what they need."""

    def __init__(self, packages: dict[Package, Unpacked], architecture: str) -> None:
        self.triplet = TRIPLETS[architecture]
        self.controls = {package: unpacked.control for package, unpacked in packages.items()}
        self.used: set[Package] = set()
        self.owners: dict[str, tuple[Package, pathlib.Path]] = {}
        for package, unpacked in packages.items():
            for found in sorted(unpacked.root.rglob("*")):
                if found.is_symlink() or found.is_file():
                    self.owners[canonical("/" + str(found.relative_to(unpacked.root)))] = (package, found)

    def read(self, path: str) -> File:
        """A file by its path, whatever links lead to it."""
        for _ in range(8):
            if (owner := self.owners.get(canonical(path))) is None:
                raise DebianError(f"no pinned package has {path}: run `config/release/release lock`")
            package, found = owner
            self.used.add(package)
            if not found.is_symlink():
                return File(found.read_bytes(), os.access(found, os.X_OK))
            path = os.path.normpath(os.path.join(os.path.dirname(canonical(path)), os.readlink(found)))
        raise DebianError(f"{path} is a link that leads nowhere")

    def authorities(self) -> File:
        """The certificates of all authorities in one file, as update-ca-certificates writes it."""
        paths = sorted(path for path in self.owners if re.match(r"/usr/share/ca-certificates/.*\.crt$", path))
        if not paths:
            raise DebianError("no pinned package has certificates of authorities: run `config/release/release lock`")
        return File(b"".join(self.read(path).content for path in paths))

    def with_libraries(self, path: str) -> dict[str, File]:
        """A file, and all that it needs to start."""
        if path == AUTHORITIES:
            return {path: self.authorities()}
        tree = {path: self.read(path)}
        queue = [path]
        while queue:
            needs = elf.needs(tree[queue.pop()].content)
            wanted = [(needs.loader, needs.loader)] if needs.loader else []
            wanted += [(f"/lib/{self.triplet}/{name}", self.find(name)) for name in needs.libraries]
            for to, source in wanted:
                if to not in tree:
                    tree[to] = self.read(source)
                    queue.append(to)
        return tree

    def find(self, library: str) -> str:
        for folder in (f"/usr/lib/{self.triplet}", "/usr/lib"):
            if f"{folder}/{library}" in self.owners:
                return f"{folder}/{library}"
        raise DebianError(f"no pinned package has the library {library}: run `config/release/release lock`")

    def copyrights(self) -> dict[str, File]:
        """The licences of the packages that were used."""
        paths = (f"/usr/share/doc/{package.name}/copyright" for package in sorted(self.used))
        return {path: self.read(path) for path in paths if path in self.owners}

    def purl(self, package: Package) -> str:
        """The URL of a package. Debian publishes advisories by source package, which scanners take from `upstream`."""
        architecture = re.search(r"^Architecture: (\S+)$", self.controls[package].decode(), re.MULTILINE).group(1)
        names = (package.version, f"{package.source}@{package.source_version}")
        version, upstream = (urllib.parse.quote(name, safe=":~") for name in names)
        return f"pkg:deb/debian/{package.name}@{version}?arch={architecture}&distro=bookworm&upstream={upstream}"

    def status(self) -> dict[str, File]:
        """The control files of the packages that were used. Scanners of images read them there, as in the images of distroless."""
        return {f"/var/lib/dpkg/status.d/{package.name}": File(self.controls[package]) for package in sorted(self.used)}


def of_this_machine(tree: dict, architecture: str) -> dict[str, File]:
    """The libraries of this machine that programs need which were built on it."""
    triplet, found = TRIPLETS[architecture], {}
    queue = [entry for entry in tree.values() if isinstance(entry, File)]
    while queue:
        needs = elf.needs(queue.pop().content)
        for path in [needs.loader] * bool(needs.loader) + [f"/lib/{triplet}/{name}" for name in needs.libraries]:
            if path not in found:
                found[path] = File(pathlib.Path(path).read_bytes(), executable=True)
                queue.append(found[path])
    return found


def unpacked(packages: list[Package], cache: pathlib.Path, architecture: str) -> dict[Package, Unpacked]:
    """The packages as folders."""
    cache.mkdir(parents=True, exist_ok=True)
    apt, found = Apt(cache, architecture), {}
    for package in packages:
        file, folder = fetch(package, cache, apt), cache / package.sha256
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache) as whole:
                subprocess.run(["dpkg-deb", "--extract", str(file), f"{whole}/all"], check=True, timeout=120)
                os.replace(f"{whole}/all", folder)
        control = subprocess.run(["dpkg-deb", "--field", str(file)], check=True, capture_output=True, timeout=60).stdout
        found[package] = Unpacked(folder, control)
    return found


def offered(cache: pathlib.Path, architecture: str) -> list[Package]:
    """What apt offers of the roots and of all that they depend on."""
    cache.mkdir(parents=True, exist_ok=True)
    apt = Apt(cache, architecture)
    apt.update()
    only = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    found = apt.run("apt-cache", "depends", "--recurse", *only, *ROOTS)
    names = {line for line in found.splitlines() if re.match(r"^[a-z0-9]", line)}
    packages = []
    for name in sorted(names):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            try:
                file = apt.download(name, pathlib.Path(folder))
            except DebianError:
                # A name that other packages provide.
                continue
            show = ["dpkg-deb", "--show", "--showformat=${Version} ${source:Package} ${source:Version}", str(file)]
            version, source, source_version = subprocess.run(show, check=True, capture_output=True, text=True, timeout=60).stdout.split()
            package = Package(architecture, name, version, source, source_version, sha256(file))
            os.replace(file, cache / f"{package.sha256}.deb")
            packages.append(package)
    return packages
