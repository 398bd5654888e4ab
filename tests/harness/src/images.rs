// SPDX-License-Identifier: Apache-2.0
//! The images of a cluster, for pods of the product and of the tests.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cinder_operator_core::cluster::KubernetesVersion;
use cinder_operator_core::releases::sidecars::version_set;
use cinder_operator_core::releases::{COMPONENTS, Component, ComponentRow};
use sha2::{Digest, Sha256};

use crate::cluster::PAUSE_IMAGE;
use crate::{Command, Entry, Image, Product, Tools};

const INIT_SOURCE: &str = include_str!("scripts/init.c");

/// The image for pods of the demo and of tests: a shell with common programs.
pub const BUSYBOX_IMAGE: &str = "docker.io/library/busybox:stable";

/// Compiles the init program of the namespaces, which is also the pause program of pods, and caches it in `cache`.
pub(crate) async fn compiled_init(cache: &Path) -> Result<PathBuf> {
    let name = format!("init-{:x}", Sha256::digest(INIT_SOURCE));
    let program = cache.join(&name[..name.len().min(21)]);
    if program.exists() {
        return Ok(program);
    }
    // Another cluster may be starting concurrently.
    let whole =
        tempfile::NamedTempFile::new_in(cache).with_context(|| format!("cannot write in {}", cache.display()))?;
    Command::new("cc")
        .args(["-static", "-O2", "-Wall", "-Werror", "-x", "c", "-", "-o"])
        .arg(whole.path())
        .stdin(INIT_SOURCE)
        .output()
        .await
        .context(
            "cannot compile the init of the nodes; a C compiler and the static C library are needed (tests/tools/apt)",
        )?;
    fs::set_permissions(whole.path(), fs::Permissions::from_mode(0o755)).context("cannot make it executable")?;
    // A file that is open for writing cannot be executed.
    whole
        .into_temp_path()
        .persist(&program)
        .with_context(|| format!("cannot name {}", program.display()))?;
    Ok(program)
}

/// Returns the image of pod sandboxes.
pub(crate) fn pause(init: &Path) -> Image {
    Image::new(PAUSE_IMAGE).file(init, "/pause").entrypoint("/pause")
}

/// Returns an image with a shell and common programs, from the distribution's static busybox.
pub async fn busybox(name: &str) -> Result<Image> {
    let program = PathBuf::from(
        Command::new("sh")
            .args(["-c", "command -v busybox"])
            .output()
            .await?
            .trim(),
    );
    let applets = Command::new(&program).arg("--list").output().await?;
    let mut image = Image::new(name).file(program, "/bin/busybox");
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        image = image.link(format!("/bin/{applet}"), "/bin/busybox");
    }
    image.arguments = vec!["/bin/sh".to_owned()];
    Ok(image)
}

/// Registry of the sidecar images.
const SIDECAR_REGISTRY: &str = "registry.k8s.io/sig-storage";
const SNAPSHOT_CONTROLLER: &str = "snapshot-controller";

/// Returns the images of the controller's sidecars for a version of Kubernetes, and the snapshot-controller of
/// `config/snapshot-controller`. Names and tags are those of the operator's table.
pub(crate) fn sidecars(tools: &Tools, kubernetes: KubernetesVersion) -> Result<Vec<Image>> {
    let row = version_set(Some(kubernetes));
    let mut images = Vec::new();
    for component in COMPONENTS.iter().filter(|component| component.sidecar.is_some()) {
        let release = row.release(component.component);
        let release = release.with_context(|| format!("the table has no release of {}", component.container))?;
        let program = tools.sidecar(component.container, component.component, row)?;
        images.push(sidecar(&format!("{}:v{release}", component.image), program)?);
    }
    images.push(snapshot_controller(tools)?);
    Ok(images)
}

/// Returns the program of each sidecar image for Kubernetes 1.`minor`, by image name.
pub fn sidecar_programs(tools: &Tools, minor: u32) -> Result<BTreeMap<String, PathBuf>> {
    let images = sidecars(tools, KubernetesVersion { major: 1, minor })?;
    let program = |image: Image| {
        let source = image.entries.into_iter().find_map(|entry| match entry {
            Entry::File { source, .. } => Some(source),
            Entry::Link { .. } | Entry::Directory { .. } => None,
        });
        Some((image.name, source?))
    };
    Ok(images.into_iter().filter_map(program).collect())
}

/// Returns the snapshot-controller in the release of the newest csi-snapshotter.
pub fn snapshot_controller(tools: &Tools) -> Result<Image> {
    let release = version_set(None).release(Component::Snapshotter);
    let release = release.context("the table has no release of csi-snapshotter")?;
    let name = format!("{SIDECAR_REGISTRY}/{SNAPSHOT_CONTROLLER}:v{release}");
    sidecar(&name, tools.path(SNAPSHOT_CONTROLLER)?)
}

/// Returns an image with this name and the program of the current table, because an earlier operator uses other
/// releases. Returns `None` for an image that is not a sidecar.
pub(crate) fn sidecar_under_name(tools: &Tools, kubernetes: KubernetesVersion, name: &str) -> Result<Option<Image>> {
    let row = version_set(Some(kubernetes));
    let of_image = |component: &&ComponentRow| {
        let tag = name.strip_prefix(component.image);
        component.sidecar.is_some() && tag.is_some_and(|tag| tag.starts_with(':'))
    };
    let Some(component) = COMPONENTS.iter().find(of_image) else {
        return Ok(None);
    };
    let program = tools.sidecar(component.container, component.component, row)?;
    sidecar(name, program).map(Some)
}

fn sidecar(name: &str, program: &Path) -> Result<Image> {
    let short = name.rsplit('/').next().unwrap_or(name);
    let short = short.split(':').next().unwrap_or(short);
    anyhow::ensure!(!short.is_empty(), "`{name}` is not the name of an image");
    let path = format!("/{short}");
    Ok(Image::new(name).file(program, &path).entrypoint(path))
}

/// Returns the product's images, with the same file lists as a release.
pub(crate) async fn product(product: &Product) -> Result<Vec<Image>> {
    let lists = product.source.join("config/images");
    let mut images = Vec::new();
    for name in ["cinder-csi-driver", "cinder-csi-operator"] {
        let list = lists.join(format!("{}.files", name.trim_start_matches("cinder-csi-")));
        let image = Image::new(format!("ghcr.io/cinder-csi/{name}:v{}", product.version));
        images.push(listed(image, &list, |name| product.program(name).map(Path::to_owned)).await?);
    }
    Ok(images)
}

/// Fills an image from a list in `config/images`. `program` returns the path of a program of this repository.
pub async fn listed(image: Image, list: &Path, program: impl Fn(&str) -> Option<PathBuf>) -> Result<Image> {
    let text = tokio::fs::read_to_string(list)
        .await
        .with_context(|| format!("cannot read {}", list.display()))?;
    let name = image.name.clone();
    from_list(image, &text, program)
        .await
        .with_context(|| format!("image of {name}"))
}

/// Fills an image from a list of files, one per line, with `#` for comments.
///
/// - `PATH` is a file of this machine with its shared libraries.
/// - `bin/NAME PATH` is a program of this repository; the first one is the entry point.
/// - `PATH -> TARGET` is a symbolic link.
/// - `PATH/` is an empty directory.
async fn from_list(mut image: Image, list: &str, program: impl Fn(&str) -> Option<PathBuf>) -> Result<Image> {
    let lines = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    for line in lines.filter(|line| !line.is_empty()) {
        if let Some((path, target)) = line.split_once(" -> ") {
            image = image.link(path.trim(), target.trim());
        } else if let Some((source, path)) = line.split_once(char::is_whitespace) {
            let name = source
                .strip_prefix("bin/")
                .with_context(|| format!("`{line}`: only bin/NAME can go elsewhere"))?;
            let built = program(name).with_context(|| format!("`{line}`: there is no program {name}"))?;
            let path = path.trim();
            image = image.program(&built, path).await?;
            if image.entrypoint.is_empty() {
                image = image.entrypoint(path);
            }
        } else if let Some(directory) = line.strip_suffix('/') {
            image = image.directory(directory);
        } else {
            image = image.program(Path::new(line), line).await?;
        }
    }
    anyhow::ensure!(
        !image.entrypoint.is_empty(),
        "the list of files has no line `bin/NAME PATH`"
    );
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn image_from_list_runs_our_program() {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("cinder-csi-driver");
        std::fs::copy("/bin/true", &binary).unwrap();
        let list = "# comment\nbin/cinder-csi-driver /bin/cinder-csi-driver\n/bin/cat  # with its libraries\n/bin/also -> /bin/cat\n/csi/\n";
        let find = |name: &str| (name == "cinder-csi-driver").then(|| binary.clone());
        let image = from_list(Image::new("x:1"), list, find).await.unwrap();
        assert_eq!(image.entrypoint, ["/bin/cinder-csi-driver"]);
        let files = |wanted: &str| {
            image
                .entries
                .iter()
                .filter(|entry| matches!(entry, Entry::File { path, .. } if path.contains(wanted)))
                .count()
        };
        // The shared library of both programs appears once.
        assert_eq!(
            (files("/bin/cinder-csi-driver"), files("/bin/cat"), files("libc.so")),
            (1, 1, 1)
        );
        assert!(image.entries.contains(&Entry::Link {
            path: "/bin/also".into(),
            target: "/bin/cat".into()
        }));
        assert!(image.entries.contains(&Entry::Directory { path: "/csi".into() }));

        let unknown = from_list(Image::new("x:1"), "bin/other /bin/other\n", find).await;
        let error = unknown.unwrap_err().to_string();
        assert!(error.contains("there is no program other"), "{error}");
    }

    #[test]
    fn sidecar_images_match_version_table() {
        let names = [
            "csi-provisioner",
            "csi-attacher",
            "csi-resizer",
            "csi-resizer-1.14",
            "csi-snapshotter",
            "snapshot-controller",
        ];
        let list: Vec<String> = names.iter().map(|name| format!("{name} /{name}\n")).collect();
        let tools = Tools::parse(&list.concat());

        let old = KubernetesVersion { major: 1, minor: 30 };
        let images = sidecars(&tools, old).unwrap();
        let resizer = images
            .iter()
            .find(|image| image.name.contains("/csi-resizer:"))
            .unwrap();
        assert_eq!(resizer.name, "registry.k8s.io/sig-storage/csi-resizer:v1.14.0");
        assert_eq!(resizer.entrypoint, ["/csi-resizer"]);
        assert_eq!(images.len(), 5);

        let earlier = "registry.k8s.io/sig-storage/csi-provisioner:v6.0.2";
        let image = sidecar_under_name(&tools, old, earlier).unwrap().unwrap();
        assert_eq!(
            (image.name.as_str(), image.entrypoint),
            (earlier, vec!["/csi-provisioner".to_owned()])
        );
        let other = "ghcr.io/cinder-csi/cinder-csi-driver:v0.0.1";
        assert!(sidecar_under_name(&tools, old, other).unwrap().is_none());
    }

    #[tokio::test]
    async fn rejects_list_without_our_program() {
        let error = from_list(Image::new("x:1"), "/bin/cat\n", |_| None).await.unwrap_err();
        assert!(error.to_string().contains("bin/NAME PATH"), "{error}");
    }
}
