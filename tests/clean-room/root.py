# SPDX-License-Identifier: Apache-2.0
"""The root directory of the clean room: Debian's smallest, the toolchains, a clone, and how this machine reaches what it downloads."""

import os
import pathlib
import re
import shutil
import subprocess

from errors import RoomError

# What README.md asks for beside the toolchains.
PACKAGES = ("git", "make")
RUST = "usr/local/rust"
GO = "usr/local/go"
SOURCE = "srv/cinder-csi"
STATIC_TARGET = f"{os.uname().machine}-unknown-linux-musl"
APT = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::Retries=3"]

# How a machine says by which ways it downloads. Each is passed on if it is set; none has a cache or a secret in it.
WAYS = re.compile(
    r"(https?|all|no)_proxy"
    r"|SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|GIT_SSL_CAINFO"
    r"|CARGO_(HTTP|NET|REGISTRIES|REGISTRY|SOURCE)_\w+|RUSTUP_DIST_SERVER|RUSTUP_UPDATE_ROOT"
    r"|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|PROXY|CERT|DEFAULT_TIMEOUT)",
    re.IGNORECASE,
)
SECRET = re.compile(r"TOKEN|PASSWORD|SECRET", re.IGNORECASE)
GO_WAYS = ("GOPROXY", "GOSUMDB", "GONOPROXY", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOVCS")
CARGO_TABLES = ("source", "registries", "registry", "http", "net")
APT_WAYS = re.compile(r"Acquire::(\w+::Proxy|https::(CaInfo|CaPath|Verify)|Check-)", re.IGNORECASE)


def output(*command, seconds=120, **options):
    """What a command of this machine prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds, check=False, **options)
    if done.returncode != 0:
        raise RoomError(f"`{' '.join(map(str, command))}` failed with status {done.returncode}")
    return done.stdout.strip()


def archives():
    """Debian's archives as this machine has them: suite, component, address."""
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release.get("VERSION_CODENAME", "").strip('"')
    if release.get("ID") != "debian" or not codename:
        raise RoomError("this machine is no Debian: the clean room takes release and archives from it")
    listing = output("apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI) $(ORIGIN)", "Created-By: Packages")
    found = []
    for line in listing.splitlines():
        suite, component, address, *origin = line.split(" ")
        # Others name their suites after Debian's; the origin is known only once the lists were fetched.
        known = suite in (codename, f"{codename}-updates", f"{codename}-security") and component == "main"
        if known and origin in ([], [""], ["Debian"]) and (suite, component, address) not in found:
            found.append((suite, component, address))
    base = [address for suite, _, address in found if suite == codename]
    if not base:
        raise RoomError(f"apt knows no archive of Debian {codename} here")
    return codename, base[0], found


def debian(root, run):
    """Installs Debian, and the ways to its archives."""
    codename, address, found = archives()
    if not shutil.which("debootstrap"):
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        run("debootstrap's package", [*APT, "update"], 600, env=environment)
        run("debootstrap's package", [*APT, "install", "-y", "--no-install-recommends", "debootstrap"], 900, env=environment)
    packages = list(PACKAGES)
    if any(address.startswith("https:") for _, _, address in found):
        packages.append("ca-certificates")
    # It mounts /proc and /sys, and leaves them mounted when it is killed.
    alone = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    run("debootstrap", [*alone, "debootstrap", "--variant=minbase", f"--include={','.join(packages)}", codename, str(root), address], 1200)
    etc = root / "etc"
    lines = [f"deb {address} {suite} {component}\n" for suite, component, address in found]
    (etc / "apt/sources.list").write_text("".join(lines))
    ways = [line for line in output("apt-config", "dump").splitlines() if APT_WAYS.match(line)]
    (etc / "apt/apt.conf.d/90machine").write_text("".join(f"{line}\n" for line in ways))
    for name in ("resolv.conf", "hosts"):
        shutil.copyfile(f"/etc/{name}", etc / name)
    # The authorities that the machine's administrator added; Debian's package takes them from here.
    own = pathlib.Path("/usr/local/share/ca-certificates")
    if own.exists():
        shutil.copytree(own, root / own.relative_to("/"), dirs_exist_ok=True)
    if "ca-certificates" in packages:
        run("certificates", ["chroot", str(root), "update-ca-certificates"], 120)


def toolchains(root, repository, run):
    """Copies Rust, without the target of static programs, and Go. Nothing else comes from this machine."""
    rustup = shutil.which("rustup")
    if not rustup:
        raise RoomError("no rustup on the PATH: the clean room takes the Rust toolchain from it")
    sysroot = pathlib.Path(output("rustc", "--print", "sysroot", cwd=repository))
    # The directory may be a link, which rustc follows; rustup finds a toolchain by its name.
    name = output("rustup", "show", "active-toolchain", cwd=repository).split(" ")[0]
    home = root / RUST
    programs = home / "bin"
    (home / "toolchains").mkdir(parents=True)
    programs.mkdir()
    run("Rust", ["cp", "-a", str(sysroot.resolve()), str(home / "toolchains" / name)], 600)
    shutil.rmtree(home / "toolchains" / name / "share/doc", ignore_errors=True)
    shutil.copy(pathlib.Path(rustup).resolve(), programs / "rustup")
    for proxy in ("cargo", "rustc", "rustdoc", "rustfmt", "cargo-fmt", "cargo-clippy", "clippy-driver"):
        (programs / proxy).symlink_to("rustup")
    environment = dict(os.environ, RUSTUP_HOME=str(home), CARGO_HOME=str(home / "unused"))
    installed = output("rustup", "target", "list", "--installed", "--toolchain", name, env=environment)
    if STATIC_TARGET in installed.split():
        run("Rust", ["rustup", "target", "remove", "--toolchain", name, STATIC_TARGET], 120, env=environment)
    for rest in ("downloads", "tmp", "unused"):
        shutil.rmtree(home / rest, ignore_errors=True)
    run("Go", ["cp", "-rL", "--preserve=mode,timestamps", output("go", "env", "GOROOT"), str(root / GO)], 600)


def sources(root, repository, run):
    """Clones what is committed, with its history."""
    if output("git", "-C", repository, "status", "--porcelain"):
        print("room: changes that are not committed are not in the clean room", flush=True)
    target = root / SOURCE
    # Over git's own protocol: a copy of the object store may lean on another store.
    run("git", ["git", "clone", "--no-local", "--quiet", str(repository), str(target)], 600)
    return output("git", "-C", target, "log", "-1", "--format=%h %s")


def cargo_ways():
    """The tables of cargo's configuration that say where crates come from."""
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
    kept, keeps = [], False
    for path in (home / "config.toml", home / "config"):
        if not path.exists():
            continue
        for line in path.read_text().splitlines():
            if header := re.match(r"\s*\[+\s*([\w-]+)", line):
                keeps = header.group(1) in CARGO_TABLES
            if keeps and not SECRET.search(line):
                kept.append(line)
        break
    return kept


def ways(root):
    """Writes down how this machine downloads, outside of the home directory, which stays empty. Returns the variables for it."""
    if lines := cargo_ways():
        (root / ".cargo").mkdir()
        (root / ".cargo/config.toml").write_text("\n".join(lines) + "\n")
    # From the weakest to the strongest.
    own = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config") / "pip/pip.conf"
    for source, target in (("/etc/pip.conf", "etc/xdg/pip/pip.conf"), (own, "etc/pip.conf")):
        if pathlib.Path(source).exists():
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / target)
    variables = {name: value for name, value in os.environ.items() if WAYS.fullmatch(name) and not SECRET.search(name)}
    variables |= {name: value for name in GO_WAYS if (value := output("go", "env", name))}
    return variables
