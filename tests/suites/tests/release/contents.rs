// SPDX-License-Identifier: Apache-2.0
//! Checks the contents of a release.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Command, Product, workspace_root};
use serde_json::{Value, json};
use suites::programs;
use tempfile::TempDir;

/// Long, because packages may have to be downloaded.
const LIMIT: Duration = Duration::from_mins(10);

/// Expected properties of an image.
struct ExpectedImage {
    name: &'static str,
    user: Value,
    entrypoint: &'static str,
    /// Some of its files.
    files: &'static [&'static str],
    /// Some components in its bill of materials.
    parts: &'static [&'static str],
}

fn wanted() -> [ExpectedImage; 2] {
    [
        ExpectedImage {
            name: "cinder-csi-driver",
            // The manifests set the user.
            user: Value::Null,
            entrypoint: "/usr/bin/cinder-csi-driver",
            files: &[
                "bin/cinder-csi-plugin",
                "etc/debian_version",
                "etc/mke2fs.conf",
                "etc/os-release",
                "etc/ssl/certs/ca-certificates.crt",
                "usr/bin/btrfs",
                "usr/sbin/blkid",
                "usr/sbin/mke2fs",
                "usr/sbin/mkfs.btrfs",
                "usr/sbin/mkfs.ext4",
                "usr/sbin/mkfs.xfs",
                "usr/share/doc/e2fsprogs/copyright",
            ],
            parts: &[
                "pkg:cargo/tonic@",
                "pkg:deb/debian/e2fsprogs@",
                "pkg:deb/debian/libc6@",
                "rust-std@",
            ],
        },
        ExpectedImage {
            name: "cinder-csi-operator",
            user: json!("65532:65532"),
            entrypoint: "/usr/bin/cinder-csi-operator",
            files: &[
                "etc/debian_version",
                "etc/os-release",
                "etc/ssl/certs/ca-certificates.crt",
                "usr/bin/kubectl-cinder_csi",
            ],
            parts: &[
                // Only the plugin uses it.
                "pkg:cargo/clap_complete@",
                "pkg:cargo/kube@",
                "pkg:deb/debian/ca-certificates@",
                "rust-std@",
            ],
        },
    ]
}

/// A built release.
pub(crate) struct BuiltRelease {
    pub(crate) version: String,
    programs: Vec<(&'static str, PathBuf)>,
    folder: TempDir,
}

impl BuiltRelease {
    /// Builds a release with existing programs.
    pub(crate) async fn build(product: &Product) -> Result<Self> {
        let programs = [
            ("cinder-csi-driver", &product.driver),
            ("cinder-csi-operator", &product.operator),
            ("kubectl-cinder_csi", &product.plugin),
        ];
        Self::make(
            &product.version,
            programs.map(|(name, path)| (name, path.clone())).into(),
        )
        .await
    }

    /// Builds the same release again.
    pub(crate) async fn again(&self) -> Result<Self> {
        Self::make(&self.version, self.programs.clone()).await
    }

    async fn make(version: &str, programs: Vec<(&'static str, PathBuf)>) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let binaries = folder.path().join("programs");
        fs::create_dir(&binaries).with_context(|| format!("cannot make {}", binaries.display()))?;
        for (name, program) in &programs {
            fs::copy(program, binaries.join(name)).with_context(|| format!("cannot copy {}", program.display()))?;
        }
        let command = Command::new(workspace_root().join("config/release/release"))
            .args(["--dirty", "--arch", architecture()?, "--binaries"])
            .arg(&binaries)
            .arg("--output")
            .arg(folder.path().join("release"))
            .env("KUBECTL", programs::kubectl()?);
        command.timeout(LIMIT).output().await?;
        Ok(Self {
            version: version.to_owned(),
            programs,
            folder,
        })
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().join("release")
    }

    pub(crate) fn text(&self, name: &str) -> Result<String> {
        let path = self.folder().join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn json(&self, name: &str) -> Result<Value> {
        serde_json::from_str(&self.text(name)?).with_context(|| format!("{name} is no JSON"))
    }

    fn blob(&self, descriptor: &Value) -> Result<Value> {
        let digest = text(&descriptor["digest"])?;
        self.json(&format!("layout/blobs/{}", digest.replace(':', "/")))
    }

    /// Returns the names in the layout and their descriptors.
    fn named(&self) -> Result<Vec<(String, Value)>> {
        let index = self.json("layout/index.json")?;
        let named = index["manifests"].as_array().context("an index without manifests")?;
        let name = |descriptor: &Value| -> Result<_> {
            let name = text(&descriptor["annotations"]["org.opencontainers.image.ref.name"])?;
            Ok((name.to_owned(), descriptor.clone()))
        };
        named.iter().map(name).collect()
    }

    /// Returns the product's images by name and digest, as in manifests.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let named = self.named()?.into_iter().filter(|(name, _)| !name.contains("/charts/"));
        named
            .map(|(name, descriptor)| Ok(format!("{name}@{}", text(&descriptor["digest"])?)))
            .collect()
    }

    /// Checks that every file is listed with its checksum, and that blobs are named by their checksum.
    pub(crate) async fn sums(&self) -> Result<()> {
        let check = Command::new("sha256sum").args(["--check", "--strict", "--quiet", "SHA256SUMS"]);
        check.directory(self.folder()).output().await?;
        let listed = self.text("SHA256SUMS")?;
        for file in files_in(&self.folder())? {
            ensure!(
                listed.contains(&format!("  {file}\n")) || file == "SHA256SUMS",
                "{file} is not in SHA256SUMS"
            );
        }
        let blobs = self.folder().join("layout/blobs/sha256");
        let sums = Command::new("sh")
            .args(["-c", "sha256sum *"])
            .directory(&blobs)
            .output()
            .await?;
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").context("sha256sum wrote another form")?;
            ensure!(sum == name, "blob {name} has the sum {sum}");
        }
        Ok(())
    }

    /// Returns the index of an image and its manifest for this machine.
    fn image(&self, name: &str) -> Result<(Value, Value)> {
        let reference = format!("ghcr.io/cinder-csi/{name}:v{}", self.version);
        let named = self.named()?;
        let entry = named.iter().find(|(name, _)| *name == reference);
        let (_, descriptor) = entry.with_context(|| format!("the layout has no {reference}"))?;
        let index = self.blob(descriptor)?;
        let platforms = index["manifests"].as_array().context("an index without manifests")?;
        ensure!(
            platforms
                .iter()
                .map(|one| &one["platform"])
                .eq([&json!({"architecture": architecture()?, "os": "linux"})]),
            "{index}"
        );
        let manifest = self.blob(&platforms[0])?;
        Ok((index, manifest))
    }

    /// Returns the archives of an image's layers.
    pub(crate) fn layers(&self, name: &str) -> Result<Vec<PathBuf>> {
        let (_, manifest) = self.image(name)?;
        let layers = manifest["layers"].as_array().context("a manifest without layers")?;
        let path = |layer: &Value| -> Result<PathBuf> {
            let blob = format!("layout/blobs/{}", text(&layer["digest"])?.replace(':', "/"));
            Ok(self.folder().join(blob))
        };
        layers.iter().map(path).collect()
    }

    /// Returns the components that the bill of materials of an image lists.
    pub(crate) fn components(&self, name: &str) -> Result<Vec<Value>> {
        let name = format!("{name}-{}-linux-{}.cdx.json", self.version, architecture()?);
        let bom = self.json(&name)?;
        ensure!(bom["bomFormat"] == "CycloneDX" && bom["specVersion"] == "1.6", "{name}");
        let components = bom["components"].as_array();
        Ok(components.context("a bill without components")?.clone())
    }

    pub(crate) async fn images(&self) -> Result<()> {
        for wanted in wanted() {
            let (index, manifest) = self.image(wanted.name)?;
            let config = self.blob(&manifest["config"])?;
            ensure!(config["config"]["Entrypoint"] == json!([wanted.entrypoint]), "{config}");
            ensure!(config["config"]["User"] == wanted.user, "{config}");
            for labels in [
                &config["config"]["Labels"],
                &manifest["annotations"],
                &index["annotations"],
            ] {
                ensure!(labels["org.opencontainers.image.version"] == self.version, "{labels}");
                ensure!(labels["org.opencontainers.image.licenses"] == "Apache-2.0", "{labels}");
                ensure!(
                    text(&labels["org.opencontainers.image.revision"])?.len() == 40,
                    "{labels}"
                );
            }
            let mut files = BTreeSet::new();
            for layer in self.layers(wanted.name)? {
                let list = Command::new("tar").args(["--list", "--gzip", "--file"]).arg(layer);
                let list = list.output().await?;
                files.extend(list.lines().map(str::to_owned));
            }
            let program = wanted.entrypoint.trim_start_matches('/');
            let files_wanted = wanted.files.iter().copied().chain([program]);
            let missing: Vec<_> = files_wanted.filter(|file| !files.contains(*file)).collect();
            ensure!(missing.is_empty(), "the image {} lacks {missing:?}", wanted.name);
        }
        Ok(())
    }

    pub(crate) fn bills_of_materials(&self) -> Result<()> {
        for wanted in wanted() {
            let components = self.components(wanted.name)?;
            let refs: Vec<&str> = components.iter().filter_map(|part| part["bom-ref"].as_str()).collect();
            let missing = wanted
                .parts
                .iter()
                .filter(|part| !refs.iter().any(|found| found.starts_with(**part)));
            let missing: Vec<_> = missing.collect();
            ensure!(missing.is_empty(), "the bill of {} lacks {missing:?}", wanted.name);
            let is_told = |part: &&Value| {
                let is_ours = part["name"].as_str().is_some_and(is_of_workspace);
                part["version"].is_string() && (part["hashes"].is_array() || is_ours || part["name"] == "rust-std")
            };
            let untold: Vec<_> = components.iter().filter(|part| !is_told(part)).collect();
            ensure!(untold.is_empty(), "without a version or a sum: {untold:?}");
        }
        Ok(())
    }

    pub(crate) async fn plugin(&self) -> Result<()> {
        let manifest = self.json("cinder-csi.yaml")?;
        ensure!(
            manifest["spec"]["version"] == format!("v{}", self.version),
            "{manifest}"
        );
        let platforms = manifest["spec"]["platforms"]
            .as_array()
            .context("a plugin without platforms")?;
        for platform in platforms {
            let uri = text(&platform["uri"])?;
            let archive = uri.rsplit('/').next().unwrap_or_default();
            let sum = format!("{}  {archive}\n", text(&platform["sha256"])?);
            ensure!(
                self.text("SHA256SUMS")?.contains(&sum),
                "{archive} has another sum than {sum}"
            );
            let unpack = Command::new("tar").args(["--extract", "--gzip", "--file", archive, "--directory", ".."]);
            unpack.directory(self.folder()).output().await?;
            let program = self.folder.path().join(text(&platform["bin"])?);
            let answer = Command::new(program).arg("--version").output().await?;
            ensure!(answer.contains(&self.version), "{archive}: the plugin says {answer:?}");
        }
        Ok(())
    }
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}

/// Crates of this repository have no checksum of their own; the revision of the image identifies them.
fn is_of_workspace(name: &str) -> bool {
    ["cinder-", "csi-", "kubectl-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn files_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry.context("cannot list the release")?;
        if entry.file_type().context("cannot list the release")?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Returns this machine's architecture in the notation of images.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("there is no release for {other}"),
    }
}
