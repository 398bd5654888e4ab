// SPDX-License-Identifier: Apache-2.0
//! Debian packages of the images for scanners: `/var/lib/dpkg/status.d` has a control file per package.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use harness::Command;

use crate::contents::BuiltRelease;

/// Compares the packages that dpkg reads in an image with its bill of materials and with the licences in the image.
pub(crate) async fn compare(made: &BuiltRelease, image: &str) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    for layer in made.layers(image)? {
        let unpack = Command::new("tar").args(["--extract", "--gzip", "--file"]).arg(layer);
        unpack.arg("--directory").arg(folder.path()).output().await?;
    }
    let release = read(&folder.path().join("etc/os-release"))?;
    ensure!(
        release.contains("\nID=debian\n") && release.contains("\nVERSION_ID=\"12\"\n"),
        "{image}: etc/os-release is {release}"
    );
    let release = read(&folder.path().join("etc/debian_version"))?;
    ensure!(release.starts_with("12."), "{image}: etc/debian_version is {release}");

    let files = folder.path().join("var/lib/dpkg/status.d");
    let names = names_in(&files)?;
    ensure!(
        names == names_in(&folder.path().join("usr/share/doc"))?,
        "{image}: packages {names:?} do not have the licences"
    );
    let installed = installed(&files, &names).await?;
    let components = made.components(image)?;
    let listed = components.iter().filter_map(|part| part["purl"].as_str());
    let listed: BTreeSet<String> = listed
        .filter(|purl| purl.starts_with("pkg:deb/"))
        .map(|purl| purl.replace("%2B", "+").replace("%40", "@"))
        .collect();
    ensure!(
        installed == listed,
        "{image}: dpkg reads {installed:?} and the bill lists {listed:?}"
    );
    Ok(())
}

/// Returns the URLs of the packages, from the control files as dpkg reads them.
async fn installed(files: &Path, names: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let database = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut status = String::new();
    for name in names {
        // A package without a status counts as not installed.
        status.push_str("Status: install ok installed\n");
        status.push_str(&read(&files.join(name))?);
        status.push('\n');
    }
    fs::write(database.path().join("status"), status).context("cannot write dpkg's database")?;
    let upstream = "upstream=${source:Package}@${source:Version}";
    let form = format!("pkg:deb/debian/${{Package}}@${{Version}}?arch=${{Architecture}}&distro=bookworm&{upstream}\n");
    let query = Command::new("dpkg-query").arg("--admindir").arg(database.path());
    let read = query.args(["--show", "--showformat", &form]).output().await?;
    Ok(read.lines().map(str::to_owned).collect())
}

fn names_in(folder: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
