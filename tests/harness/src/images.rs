// SPDX-License-Identifier: Apache-2.0
//! The images of a cluster: what pods of the product and of the tests run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cluster::PAUSE_IMAGE;
use crate::{Command, Image, Product, Tools};

const INIT_SOURCE: &str = include_str!("scripts/init.c");

/// The name of the image for pods of the demo and of tests: a shell with the usual small programs.
pub const BUSYBOX_IMAGE: &str = "docker.io/library/busybox:stable";

/// The program that is the init of the nodes' namespaces and the pause program of pods, compiled once into `cache`.
pub(crate) async fn compiled_init(cache: &Path) -> Result<PathBuf> {
    let name = format!("init-{:x}", Sha256::digest(INIT_SOURCE));
    let program = cache.join(&name[..name.len().min(21)]);
    if program.exists() {
        return Ok(program);
    }
    // Another cluster may start at this moment.
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
    // A program that is open for writing cannot be run.
    whole
        .into_temp_path()
        .persist(&program)
        .with_context(|| format!("cannot name {}", program.display()))?;
    Ok(program)
}

/// The image of pod sandboxes.
pub(crate) fn pause(init: &Path) -> Image {
    Image::new(PAUSE_IMAGE).file(init, "/pause").entrypoint("/pause")
}

/// A shell and its friends under this name, from the distribution's static busybox.
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

/// The sidecars of the controller, under the names and tags that the product's manifests use.
pub(crate) fn sidecars(tools: &Tools) -> Result<Vec<Image>> {
    [
        ("csi-provisioner", "v6.3.0"),
        ("csi-attacher", "v4.12.0"),
        // The module is v2.2.0: of the patch release after it only the image was published.
        ("csi-resizer", "v2.2.1"),
        ("csi-snapshotter", "v8.6.0"),
        ("snapshot-controller", "v8.6.0"),
    ]
    .into_iter()
    .map(|(name, tag)| {
        let path = format!("/{name}");
        let image = Image::new(format!("registry.k8s.io/sig-storage/{name}:{tag}"));
        Ok(image.file(tools.path(name)?, &path).entrypoint(path))
    })
    .collect()
}

/// The product's own images, from the same lists of files as those of a release.
pub(crate) async fn product(product: &Product) -> Result<Vec<Image>> {
    let lists = product.source.join("config/images");
    let mut images = Vec::new();
    for (name, binary) in [
        ("cinder-csi-driver", &product.driver),
        ("cinder-csi-operator", &product.operator),
    ] {
        let list = lists.join(format!("{}.files", name.trim_start_matches("cinder-csi-")));
        let image = Image::new(format!("ghcr.io/cinder-csi/{name}:v{}", product.version));
        images.push(listed(image, &list, binary).await?);
    }
    Ok(images)
}

/// Fills an image from a list of `config/images`, and the folder where `binary` is built.
pub async fn listed(image: Image, list: &Path, binary: &Path) -> Result<Image> {
    let text = tokio::fs::read_to_string(list)
        .await
        .with_context(|| format!("cannot read {}", list.display()))?;
    let name = image.name.clone();
    from_list(image, &text, binary)
        .await
        .with_context(|| format!("image of {name}"))
}

/// Fills an image from a list of files, one per line, `#` starting a comment:
/// `PATH` is a file of this machine with the shared libraries that it needs, `bin/NAME PATH` a program of this repository
/// (the image runs the first of them), `PATH -> TARGET` a symbolic link, `PATH/` an empty directory.
async fn from_list(mut image: Image, list: &str, binary: &Path) -> Result<Image> {
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
            let built = binary.with_file_name(name);
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
    use crate::Entry;

    #[tokio::test]
    async fn a_list_of_files_becomes_an_image_that_runs_our_program() {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("cinder-csi-driver");
        std::fs::copy("/bin/true", &binary).unwrap();
        let list = "# comment\nbin/cinder-csi-driver /bin/cinder-csi-driver\n/bin/cat  # with its libraries\n/bin/also -> /bin/cat\n/csi/\n";
        let image = from_list(Image::new("x:1"), list, &binary).await.unwrap();
        assert_eq!(image.entrypoint, ["/bin/cinder-csi-driver"]);
        let files = |wanted: &str| {
            image
                .entries
                .iter()
                .filter(|entry| matches!(entry, Entry::File { path, .. } if path.contains(wanted)))
                .count()
        };
        // The library that both need is there once.
        assert_eq!(
            (files("/bin/cinder-csi-driver"), files("/bin/cat"), files("libc.so")),
            (1, 1, 1)
        );
        assert!(image.entries.contains(&Entry::Link {
            path: "/bin/also".into(),
            target: "/bin/cat".into()
        }));
        assert!(image.entries.contains(&Entry::Directory { path: "/csi".into() }));
    }

    #[tokio::test]
    async fn a_list_without_our_program_is_refused() {
        let error = from_list(Image::new("x:1"), "/bin/cat\n", Path::new("/nowhere"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("bin/NAME PATH"), "{error}");
    }
}
