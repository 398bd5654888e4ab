# SPDX-License-Identifier: Apache-2.0
"""What an image is made of, as CycloneDX 1.6 says it."""

import json
import pathlib
import re
import subprocess
import tomllib
import uuid

from debian import Files

# The serial number is made of the image's digest: the same image, the same number.
SERIALS = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/cinder-csi/cinder-csi/sbom")


def crates(root: pathlib.Path, packages: list[str], target: str) -> list[dict]:
    """The crates that are linked into the programs of packages."""
    command = ["cargo", "tree", "--locked", "--target", target, "--edges", "normal,no-proc-macro"]
    command += [word for package in packages for word in ("--package", package)]
    command += ["--prefix", "none", "--format", "{p}|{l}"]
    tree = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=300).stdout
    lock = tomllib.loads((root / "Cargo.lock").read_text())["package"]
    sums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock}
    found = {}
    # A blank line separates packages.
    for line in filter(None, tree.splitlines()):
        text, _, licence = line.removesuffix(" (*)").rpartition("|")
        match = re.match(r"(\S+) v(\S+)", text)
        if match is None:
            raise ValueError(f"cargo tree wrote a line that is not known: {line}")
        name, version = match.groups()
        component = {"type": "library", "name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}"}
        component["bom-ref"] = component["purl"]
        if licence:
            # The form with a slash is that of old manifests.
            component["licenses"] = [{"expression": licence.replace("/", " OR ").replace("  ", " ")}]
        if checksum := sums.get((name, version)):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        found[component["purl"]] = component
    version = subprocess.run(["rustc", "--version"], cwd=root, check=True, capture_output=True, text=True, timeout=60).stdout.split()[1]
    found["rust"] = {
        "type": "library",
        "name": "rust-std",
        "version": version,
        "bom-ref": f"rust-std@{version}",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }
    return [found[key] for key in sorted(found)]


def debian(files: Files) -> list[dict]:
    """The packages whose files are in an image."""
    return [
        {
            "type": "library",
            "name": package.name,
            "version": package.version,
            "purl": files.purl(package),
            "bom-ref": files.purl(package),
            "hashes": [{"alg": "SHA-256", "content": package.sha256}],
        }
        for package in sorted(files.used)
    ]


def document(image: str, version: str, architecture: str, digest: str, time: str, components: list[dict]) -> bytes:
    """The bill of materials of one image of one platform."""
    name = image.rsplit("/", 1)[-1]
    described = {
        "type": "container",
        "name": image,
        "version": version,
        "bom-ref": f"{name}-{architecture}",
        "purl": f"pkg:oci/{name}@{digest.replace(':', '%3A')}?arch={architecture}&repository_url={image}",
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
    }
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(SERIALS, digest)}",
        "version": 1,
        "metadata": {"timestamp": time, "component": described},
        "components": components,
        "dependencies": [{"ref": described["bom-ref"], "dependsOn": sorted(part["bom-ref"] for part in components)}],
    }
    return json.dumps(bom, indent=1).encode() + b"\n"
