// SPDX-License-Identifier: Apache-2.0
//! Container images, packed by the release's image writer.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{Command, workspace_root};

/// Packs images with `config/release/oci.py`.
const PACK: &str = "tests/harness/src/scripts/pack.py";

/// Number of digits of an image's fingerprint in file names.
const FINGERPRINT: usize = 16;

/// Age at which an unused archive is removed. It is longer than any time between packing and import.
const UNUSED_FOR: Duration = Duration::from_hours(1);

/// Limit for the largest image on a busy machine.
const PACK_TIMEOUT: Duration = Duration::from_mins(5);

const PATH_VARIABLE: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An entry of an image. Paths in the image are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Entry {
    /// A file of this machine, executable for all users if it is executable for its owner.
    File {
        /// Path on this machine.
        source: PathBuf,
        /// Path in the image.
        path: String,
    },
    Link {
        /// Path in the image.
        path: String,
        /// Target of the link.
        target: String,
    },
    Directory {
        /// Path in the image.
        path: String,
    },
}

/// A description of an image.
#[derive(Debug, Clone)]
pub struct Image {
    /// Full name, as in manifests.
    pub name: String,
    /// Entries. Parent directories are created automatically.
    pub entries: Vec<Entry>,
    /// The program.
    pub entrypoint: Vec<String>,
    /// Default arguments of the program, which a pod may replace.
    pub arguments: Vec<String>,
}

impl Image {
    /// Creates an empty image.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            entries: Vec::new(),
            entrypoint: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Adds a file of this machine.
    #[must_use]
    pub fn file(mut self, source: impl Into<PathBuf>, path: impl Into<String>) -> Self {
        self.entries.push(Entry::File {
            source: source.into(),
            path: path.into(),
        });
        self
    }

    #[must_use]
    pub fn link(mut self, path: impl Into<String>, target: impl Into<String>) -> Self {
        self.entries.push(Entry::Link {
            path: path.into(),
            target: target.into(),
        });
        self
    }

    /// Adds an empty directory.
    #[must_use]
    pub fn directory(mut self, path: impl Into<String>) -> Self {
        self.entries.push(Entry::Directory { path: path.into() });
        self
    }

    /// Adds a program of this machine at this path, with its shared libraries.
    pub async fn program(mut self, source: &Path, path: impl Into<String>) -> Result<Self> {
        self = self.file(source, path);
        for library in shared_libraries(source).await? {
            let path = library
                .to_str()
                .context("the path of a library is not UTF-8")?
                .to_owned();
            if !self
                .entries
                .iter()
                .any(|entry| matches!(entry, Entry::File { path: there, .. } if *there == path))
            {
                self = self.file(library, path);
            }
        }
        Ok(self)
    }

    /// Sets the program.
    #[must_use]
    pub fn entrypoint(mut self, path: impl Into<String>) -> Self {
        self.entrypoint = vec![path.into()];
        self
    }

    /// Writes the image to an archive in `directory` and returns the path. Reuses an archive of the same files (by
    /// path, size and time).
    pub async fn pack(&self, directory: &Path) -> Result<PathBuf> {
        let packed = self.pack_into(directory).await;
        packed.with_context(|| format!("cannot pack image {}", self.name))
    }

    /// Writes the files below a directory, with the layout of a container.
    pub async fn unpack(&self, root: &Path) -> Result<()> {
        fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
        let layer = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
        self.write(&["--layer"], layer.path()).await?;
        let tar = Command::new("tar").arg("-xpf").arg(layer.path()).arg("-C").arg(root);
        tar.output().await.map(drop)
    }

    async fn pack_into(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let short = self.name.rsplit('/').next().unwrap_or("image").replace(':', "-");
        let archive = directory.join(format!("{short}-{}.tar", &self.fingerprint()?[..FINGERPRINT]));
        if let Ok(known) = File::open(&archive) {
            // Marks the archive as used for `forget_older`.
            known
                .set_modified(SystemTime::now())
                .context("cannot mark an archive as used")?;
            return Ok(archive);
        }
        let whole = tempfile::NamedTempFile::new_in(directory).context("cannot make a temporary file")?;
        self.write(&[], whole.path()).await?;
        whole
            .persist(&archive)
            .with_context(|| format!("cannot name {}", archive.display()))?;
        forget_older(directory, &short);
        Ok(archive)
    }

    async fn write(&self, options: &[&str], file: &Path) -> Result<()> {
        let image = serde_json::json!({
            "name": self.name, "architecture": architecture(), "entries": self.entries,
            "config": {"Entrypoint": self.entrypoint, "Cmd": self.arguments, "Env": [PATH_VARIABLE]},
        });
        let pack = Command::new("python3")
            .arg(workspace_root().join(PACK))
            .args(options)
            .arg(file);
        pack.stdin(image.to_string())
            .timeout(PACK_TIMEOUT)
            .output()
            .await
            .map(drop)
    }

    /// Hashes paths, sizes and times of the files, without reading them.
    fn fingerprint(&self) -> Result<String> {
        let mut hash = Sha256::new();
        hash.update(format!("{self:?}"));
        for entry in &self.entries {
            if let Entry::File { source, .. } = entry {
                let data = fs::metadata(source).with_context(|| format!("cannot read {}", source.display()))?;
                hash.update(format!(
                    "{} {}.{} {:o}\n",
                    data.len(),
                    data.mtime(),
                    data.mtime_nsec(),
                    data.mode()
                ));
            }
        }
        Ok(format!("{:x}", hash.finalize()))
    }
}

/// Removes archives of earlier states of an image that were not used lately.
fn forget_older(directory: &Path, short: &str) {
    let prefix = format!("{short}-");
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let age = entry
            .metadata()
            .and_then(|data| data.modified())
            .ok()
            .and_then(|used| used.elapsed().ok());
        let same = entry
            .file_name()
            .to_string_lossy()
            .strip_prefix(&prefix)
            .is_some_and(|rest| rest.len() == FINGERPRINT + 4);
        if same && age.is_some_and(|age| age > UNUSED_FOR) {
            // Errors are ignored, because this is only a cache.
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// Returns the libraries and the loader of a program; none for a static one.
async fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listing = Command::new("ldd")
        .arg(program)
        .timeout(Duration::from_secs(20))
        .output()
        .await;
    match listing {
        Ok(text) => parse_libraries(&text).with_context(|| format!("{} cannot run here", program.display())),
        // ldd fails for a static program.
        Err(error) if error.to_string().contains("not a dynamic executable") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// `libc.so.6 => /lib/libc.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`, `linux-vdso.so.1 (0x…)`
fn parse_libraries(listing: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in listing.lines().map(str::trim) {
        let path = match line.split_once(" => ") {
            Some((name, "not found")) => bail!("its library {name} is missing"),
            Some((_, found)) => found,
            None => line,
        };
        let path = path.split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

/// Returns the name of this machine's architecture in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_libraries_and_rejects_missing_one() {
        let listing = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n";
        let expected = [PathBuf::from("/lib/libc.so.6"), PathBuf::from("/lib64/ld.so")];
        assert_eq!(parse_libraries(listing).unwrap(), expected);
        assert!(
            parse_libraries("libx.so => not found")
                .unwrap_err()
                .to_string()
                .contains("libx.so")
        );
    }

    #[tokio::test]
    async fn archive_contains_image_name_and_layer_digest() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("hello");
        fs::write(&source, "hello").unwrap();
        let image = Image::new("example.org/a/hello:1")
            .file(&source, "/opt/deep/hello")
            .link("/bin/hi", "/opt/deep/hello");
        let archive = image.pack(directory.path()).await.unwrap();
        assert_eq!(image.pack(directory.path()).await.unwrap(), archive);

        let unpacked = directory.path().join("archive");
        extract(&archive, &unpacked).await;
        let read = |path: &str| fs::read(unpacked.join(path)).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&read("manifest.json")).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "example.org/a/hello:1");
        let layer = manifest[0]["Layers"][0].as_str().unwrap();
        let config: serde_json::Value = serde_json::from_slice(&read(manifest[0]["Config"].as_str().unwrap())).unwrap();
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            format!("sha256:{:x}", Sha256::digest(read(layer)))
        );
        let root = directory.path().join("root");
        extract(&unpacked.join(layer), &root).await;
        let other = directory.path().join("other");
        image.unpack(&other).await.unwrap();
        for root in [root, other] {
            assert_eq!(fs::read_to_string(root.join("opt/deep/hello")).unwrap(), "hello");
            assert_eq!(
                fs::read_link(root.join("bin/hi")).unwrap(),
                Path::new("/opt/deep/hello")
            );
            assert_eq!(fs::metadata(root.join("tmp")).unwrap().mode() & 0o7777, 0o1777);
        }
    }

    async fn extract(archive: &Path, target: &Path) {
        fs::create_dir(target).unwrap();
        let tar = Command::new("tar").arg("-xpf").arg(archive).arg("-C").arg(target);
        tar.output().await.unwrap();
    }

    #[tokio::test]
    async fn pack_removes_long_unused_archives() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let image = Image::new("hello:1").file(&source, "/hello");
        let mut archives = Vec::new();
        for (content, age) in [
            ("long ago", UNUSED_FOR * 2),
            ("a while ago", UNUSED_FOR / 2),
            ("now", Duration::ZERO),
        ] {
            fs::write(&source, content).unwrap();
            let archive = image.pack(directory.path()).await.unwrap();
            File::open(&archive)
                .unwrap()
                .set_modified(SystemTime::now() - age)
                .unwrap();
            archives.push(archive);
        }
        let existing: Vec<_> = archives.iter().map(|archive| archive.exists()).collect();
        assert_eq!(existing, [false, true, true]);
    }

    #[tokio::test]
    async fn changed_file_changes_archive() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("hello");
        fs::write(&source, "hello").unwrap();
        let image = Image::new("hello:1").file(&source, "/hello");
        let before = image.pack(directory.path()).await.unwrap();
        fs::write(&source, "goodbye").unwrap();
        assert_ne!(image.pack(directory.path()).await.unwrap(), before);
    }
}
