// SPDX-License-Identifier: Apache-2.0
//! Images for the pods of the specs, built from programs of this machine under the names of the suite.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use harness::{Image, Tools, busybox};

/// Directories of programs on this machine.
const PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// Programs in the image with a full shell and GNU tools. Only GNU `dd` supports `oflag=nocache`.
const GNU: &str = "base64 bash blockdev cat chmod chown cp cut dd df echo env find grep head id ls mkdir mount mv od rm sed seq sh \
                   sha256sum sleep sort stat sync tail tee test touch tr true umount wc";

/// Returns all images in the output of `e2e.test --list-images`.
pub(crate) async fn all(list: &str, tools: &Tools) -> Result<Vec<Image>> {
    let agnhost = busybox(find(list, "agnhost")?)
        .await?
        .file(tools.path("agnhost")?, "/agnhost")
        .entrypoint("/agnhost");
    let agnhost = Image {
        arguments: vec!["pause".to_owned()],
        ..agnhost
    };
    let mut glibc = Image::new(find(list, "glibc-dns-testing")?);
    for name in GNU.split_whitespace() {
        glibc = glibc.program(&located(name)?, format!("/bin/{name}")).await?;
    }
    let mut images = vec![agnhost, glibc, busybox(find(list, "busybox")?).await?];
    // The specs use only the shell of the web server image.
    for name in list.lines().map(str::trim).filter(|name| name.contains("/nginx:")) {
        images.push(busybox(name).await?);
    }
    Ok(images)
}

/// Returns the newest image with a name. The list contains older ones for upgrade tests.
fn find<'a>(list: &'a str, name: &str) -> Result<&'a str> {
    let prefix = format!("registry.k8s.io/e2e-test-images/{name}:");
    let version = |image: &str| -> Vec<u32> {
        let tag = image.rsplit(':').next().unwrap_or_default();
        tag.split(['.', '-']).filter_map(|part| part.parse().ok()).collect()
    };
    list.lines()
        .map(str::trim)
        .filter(|line| line.starts_with(&prefix))
        .max_by_key(|line| version(line))
        .with_context(|| format!("the suite's list has no image {prefix}…: {list}"))
}

fn located(name: &str) -> Result<PathBuf> {
    let mut places = PLACES.iter().map(|place| Path::new(place).join(name));
    places
        .find(|path| path.exists())
        .with_context(|| format!("this machine has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_newest_image_of_name() {
        let list = "registry.k8s.io/e2e-test-images/agnhost:2.9\nregistry.k8s.io/e2e-test-images/agnhost:2.63.0\n\
                    registry.k8s.io/e2e-test-images/busybox:1.37.0-1\n";
        assert_eq!(
            find(list, "agnhost").unwrap(),
            "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
        );
        assert_eq!(
            find(list, "busybox").unwrap(),
            "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
        );
        assert!(find(list, "box").is_err());
    }
}
