// SPDX-License-Identifier: Apache-2.0
//! Container images, packed without Docker: a docker-archive is a tar with one layer, a config and a manifest.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::Command;

/// How many digits of an image's fingerprint tell its states apart.
const FINGERPRINT: usize = 16;

/// Longer than anybody takes from packing an image to importing it.
const UNUSED_FOR: Duration = Duration::from_hours(1);

const PATH_VARIABLE: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Something in an image. Paths in the image are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file of this machine, executable for everybody if it is for its owner.
    File {
        /// Where it is on this machine.
        source: PathBuf,
        /// Where it goes in the image.
        path: String,
    },
    /// A symbolic link.
    Link {
        /// Where it is in the image.
        path: String,
        /// What it says.
        target: String,
    },
    /// An empty directory.
    Directory {
        /// Where it is in the image.
        path: String,
    },
}

/// An image to be packed.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its whole name, as manifests write it.
    pub name: String,
    /// What is in it. Directories above an entry need not be named.
    pub entries: Vec<Entry>,
    /// The program that it runs.
    pub entrypoint: Vec<String>,
    /// The program's arguments, which a pod may replace.
    pub arguments: Vec<String>,
}

impl Image {
    /// An image that holds nothing yet.
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

    /// Adds a symbolic link.
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

    /// Adds a program of this machine at the same path, with the shared libraries that it needs.
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

    /// Sets the program that the image runs.
    #[must_use]
    pub fn entrypoint(mut self, path: impl Into<String>) -> Self {
        self.entrypoint = vec![path.into()];
        self
    }

    /// Writes the image to an archive in `directory` and returns its path. An archive that was made of the same files
    /// before (by path, size and time) is used again.
    pub async fn pack(&self, directory: &Path) -> Result<PathBuf> {
        let (image, directory) = (self.clone(), directory.to_owned());
        let packed = tokio::task::spawn_blocking(move || image.pack_blocking(&directory));
        packed
            .await
            .context("packing was cancelled")?
            .with_context(|| format!("cannot pack image {}", self.name))
    }

    /// Writes its files below a directory, as a container would see them.
    pub async fn unpack(&self, root: &Path) -> Result<()> {
        let (image, root) = (self.clone(), root.to_owned());
        let unpacked = tokio::task::spawn_blocking(move || {
            let layer = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
            image.write_layer(layer.as_file())?;
            let layer = layer.reopen().context("cannot read the layer")?;
            tar::Archive::new(layer).unpack(root).context("cannot write them")
        });
        unpacked
            .await
            .context("unpacking was cancelled")?
            .with_context(|| format!("cannot unpack image {}", self.name))
    }

    fn pack_blocking(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let short = self.name.rsplit('/').next().unwrap_or("image").replace(':', "-");
        let archive = directory.join(format!("{short}-{}.tar", &self.fingerprint()?[..FINGERPRINT]));
        if let Ok(known) = File::open(&archive) {
            // Tells `forget_older` that it is in use.
            known
                .set_modified(SystemTime::now())
                .context("cannot mark an archive as used")?;
            return Ok(archive);
        }
        let layer = tempfile::NamedTempFile::new_in(directory).context("cannot make a temporary file")?;
        self.write_layer(layer.as_file())?;
        let layer_digest = digest_of(layer.path())?;
        let config = serde_json::json!({
            "architecture": architecture(), "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Cmd": self.arguments, "Env": [PATH_VARIABLE]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
            "history": [{"created_by": "harness"}],
        })
        .to_string();
        let config_name = format!("{:x}.json", Sha256::digest(config.as_bytes()));
        let layer_name = format!("{layer_digest}/layer.tar");
        let manifest =
            serde_json::json!([{"Config": config_name, "RepoTags": [self.name], "Layers": [layer_name]}]).to_string();

        let whole = tempfile::NamedTempFile::new_in(directory).context("cannot make a temporary file")?;
        let mut builder = Builder::new(whole.as_file());
        add_bytes(&mut builder, &config_name, config.as_bytes())?;
        let mut layer_file = File::open(layer.path()).context("cannot read the layer")?;
        let mut header = header(EntryType::Regular, 0o644);
        header.set_size(layer_file.metadata().context("cannot read the layer")?.len());
        builder
            .append_data(&mut header, &layer_name, &mut layer_file)
            .context("cannot add the layer")?;
        add_bytes(&mut builder, "manifest.json", manifest.as_bytes())?;
        builder.finish().context("cannot finish the archive")?;
        drop(builder);
        whole
            .persist(&archive)
            .with_context(|| format!("cannot name {}", archive.display()))?;
        forget_older(directory, &short);
        Ok(archive)
    }

    /// What the archive depends on, without reading whole files.
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

    fn write_layer(&self, file: &File) -> Result<()> {
        let mut builder = Builder::new(file);
        let mut directories = BTreeSet::new();
        for standard in ["/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/var"] {
            add_directories(&mut builder, &mut directories, standard)?;
        }
        for entry in &self.entries {
            match entry {
                Entry::Directory { path } => add_directories(&mut builder, &mut directories, path)?,
                Entry::Link { path, target } => {
                    add_parents(&mut builder, &mut directories, path)?;
                    let mut header = header(EntryType::Symlink, 0o777);
                    builder
                        .append_link(&mut header, relative(path), target)
                        .with_context(|| format!("cannot add the link {path}"))?;
                }
                Entry::File { source, path } => {
                    add_parents(&mut builder, &mut directories, path)?;
                    let mut input = File::open(source).with_context(|| format!("cannot read {}", source.display()))?;
                    let data = input
                        .metadata()
                        .with_context(|| format!("cannot read {}", source.display()))?;
                    if !data.is_file() {
                        bail!("{} is not a file", source.display());
                    }
                    let executable = data.permissions().mode() & 0o100 != 0;
                    let mut header = header(EntryType::Regular, if executable { 0o755 } else { 0o644 });
                    header.set_size(data.len());
                    builder
                        .append_data(&mut header, relative(path), &mut input)
                        .with_context(|| format!("cannot add {path}"))?;
                }
            }
        }
        builder.finish().context("cannot finish the layer")
    }
}

/// Removes the archives of an image's earlier states, unless somebody used them lately.
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
            // It is only a cache.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The libraries and the loader that a program needs; none for a static one.
async fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listing = Command::new("ldd")
        .arg(program)
        .timeout(Duration::from_secs(20))
        .output()
        .await;
    match listing {
        Ok(text) => parse_libraries(&text).with_context(|| format!("{} cannot run here", program.display())),
        // ldd's way to say that a program is static is to fail.
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

fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    // Always the same bytes for the same files.
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

fn add_bytes(builder: &mut Builder<&File>, name: &str, bytes: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, 0o644);
    header.set_size(bytes.len() as u64);
    builder
        .append_data(&mut header, name, bytes)
        .with_context(|| format!("cannot add {name}"))
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn add_parents(builder: &mut Builder<&File>, known: &mut BTreeSet<String>, path: &str) -> Result<()> {
    match path.rsplit_once('/') {
        Some((parent, _)) => add_directories(builder, known, parent),
        None => Ok(()),
    }
}

fn add_directories(builder: &mut Builder<&File>, known: &mut BTreeSet<String>, path: &str) -> Result<()> {
    let mut so_far = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        so_far.push_str(part);
        so_far.push('/');
        if known.insert(so_far.clone()) {
            let mut header = header(EntryType::Directory, if so_far == "tmp/" { 0o1777 } else { 0o755 });
            builder
                .append_data(&mut header, &so_far, &[][..])
                .with_context(|| format!("cannot add {so_far}"))?;
        }
    }
    Ok(())
}

fn digest_of(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file
            .read(&mut buffer)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if read == 0 {
            return Ok(format!("{:x}", hash.finalize()));
        }
        hash.update(&buffer[..read]);
    }
}

/// The name that images use for this machine's processor.
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
    fn libraries_are_those_with_a_path_and_a_missing_one_is_an_error() {
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
    async fn an_archive_names_its_image_and_the_digest_of_its_layer() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("hello");
        fs::write(&source, "hello").unwrap();
        let image = Image::new("example.org/a/hello:1")
            .file(&source, "/opt/deep/hello")
            .link("/bin/hi", "/opt/deep/hello");
        let archive = image.pack(directory.path()).await.unwrap();
        assert_eq!(image.pack(directory.path()).await.unwrap(), archive);

        let mut files = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(File::open(&archive).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().to_string_lossy().into_owned(), bytes);
        }
        let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "example.org/a/hello:1");
        let layer = &files[manifest[0]["Layers"][0].as_str().unwrap()];
        let config: serde_json::Value =
            serde_json::from_slice(&files[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            format!("sha256:{:x}", Sha256::digest(layer))
        );
        let mut layer = tar::Archive::new(layer.as_slice());
        let paths: Vec<_> = layer
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned())
            .collect();
        assert!(
            paths.contains(&"opt/deep/hello".to_owned()) && paths.contains(&"opt/deep/".to_owned()),
            "{paths:?}"
        );
    }

    #[tokio::test]
    async fn earlier_states_are_forgotten_when_they_were_not_used_for_long() {
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
        let there: Vec<_> = archives.iter().map(|archive| archive.exists()).collect();
        assert_eq!(there, [false, true, true]);
    }

    #[tokio::test]
    async fn a_changed_file_makes_another_archive() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("hello");
        fs::write(&source, "hello").unwrap();
        let image = Image::new("hello:1").file(&source, "/hello");
        let before = image.pack(directory.path()).await.unwrap();
        fs::write(&source, "goodbye").unwrap();
        assert_ne!(image.pack(directory.path()).await.unwrap(), before);
    }
}
