// SPDX-License-Identifier: Apache-2.0
//! Configuration files as a whole: all their clouds, and all files to watch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::cloud_conf::CloudsFile;
use super::gcfg::{self, Entry};
use super::{CloudConfig, ConfigError, cloud_conf};

/// The remedy for a file that has sections of named clouds, but not of the requested one.
const NAME_REMEDY: &str = "add the section, or name another one by --cloud-name";

/// All clouds of the files in `cloud.conf` format.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// By name; the section `[Global]` without a name is "".
    pub clouds: BTreeMap<String, CloudConfig>,
    /// All files of the configuration: `cloud.conf`, `clouds.yaml`, certificates, keys.
    pub files: BTreeSet<PathBuf>,
}

impl Configuration {
    /// Reads files; the last file that has a key takes precedence. `names` are the requested clouds, "" for the
    /// section without a name. Without names, that section is read, or all named sections where it is missing. With
    /// `use-clouds`, keys that a section lacks come from its `clouds-file`. Certificates and keys are read too; for
    /// an unreadable one, see [`super::Tls::read_files`]. May block as long as the file system does.
    pub fn load(files: &[PathBuf], names: &[String]) -> Result<Self, ConfigError> {
        let mut entries = Vec::new();
        for path in files {
            let text = cloud_conf::read_file(path)?;
            entries.append(&mut gcfg::parse(&text, &path.display().to_string())?);
        }
        let shown: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        let mut configuration = Self::from_entries(&entries, &shown.join(", "), names, CloudsFile::Readable)?;
        configuration.files.extend(files.iter().cloned());
        for cloud in configuration.clouds.values_mut() {
            cloud.tls.read_files();
        }
        Ok(configuration)
    }

    /// Parses one text. Opens no file, as [`CloudConfig::from_cloud_conf`].
    pub fn from_cloud_conf(text: &str, names: &[String]) -> Result<Self, ConfigError> {
        let entries = gcfg::parse(text, cloud_conf::FILE)?;
        Self::from_entries(&entries, cloud_conf::FILE, names, CloudsFile::Refused)
    }

    fn from_entries(entries: &[Entry], file: &str, names: &[String], access: CloudsFile) -> Result<Self, ConfigError> {
        let known: BTreeSet<&str> = entries
            .iter()
            .filter(|entry| entry.section == "global")
            .map(Entry::cloud)
            .collect();
        let requested: BTreeSet<&str> = match names {
            [] if known.is_empty() || known.contains("") => BTreeSet::from([""]),
            [] => known.clone(),
            names => names.iter().map(String::as_str).collect(),
        };
        let mut clouds = BTreeMap::new();
        let mut files = BTreeSet::new();
        for name in &requested {
            if !name.is_empty() && !known.contains(name) {
                return Err(ConfigError::Missing {
                    file: file.to_owned(),
                    key: format!("section [Global {name:?}]"),
                    remedy: NAME_REMEDY.to_owned(),
                });
            }
            let (cloud, clouds_file) = cloud_conf::read_cloud(entries, file, name, access)?;
            files.extend(clouds_file);
            files.extend(cloud.tls.files().map(Path::to_owned));
            clouds.insert((*name).to_owned(), cloud);
        }
        let mut configuration = Self { clouds, files };
        configuration.warn_once(known.difference(&requested));
        Ok(configuration)
    }

    /// Adds warnings about all clouds to the first cloud only.
    fn warn_once<'a>(&mut self, not_served: impl Iterator<Item = &'a &'a str>) {
        let mut logged = BTreeSet::new();
        let mut idle: Vec<String> = not_served
            .map(|name| format!("section [Global {name:?}] is not served; name it by --cloud-name"))
            .collect();
        for cloud in self.clouds.values_mut() {
            cloud.warnings.append(&mut idle);
            cloud.warnings.retain(|warning| logged.insert(warning.clone()));
        }
    }
}

impl CloudConfig {
    /// Parses the `cloud.conf` of one cloud, in the section without a name. Unknown sections and keys become
    /// [`CloudConfig::warnings`]. Opens no file: `use-clouds` is rejected, and [`super::Tls::read_files`] reads
    /// certificates.
    pub fn from_cloud_conf(text: &str) -> Result<Self, ConfigError> {
        let entries = gcfg::parse(text, cloud_conf::FILE)?;
        if let Some(entry) = entries
            .iter()
            .find(|entry| entry.section == "global" && !entry.cloud().is_empty())
        {
            return Err(ConfigError::Unsupported {
                place: entry.place.clone(),
                what: format!("section [Global {:?}]", entry.cloud()),
                remedy: "one cloud is wanted here: keep the section [Global] alone".to_owned(),
            });
        }
        cloud_conf::read_cloud(&entries, cloud_conf::FILE, "", CloudsFile::Refused).map(|(cloud, _)| cloud)
    }

    /// Reads files of one cloud, in the section without a name, as [`Configuration::load`] does.
    pub fn load(files: &[PathBuf]) -> Result<Self, ConfigError> {
        let configuration = Configuration::load(files, &[String::new()])?;
        configuration
            .clouds
            .into_values()
            .next()
            .ok_or_else(|| ConfigError::Missing {
                file: cloud_conf::FILE.to_owned(),
                key: "section [Global]".to_owned(),
                remedy: "add it".to_owned(),
            })
    }
}

/// SHA-256 over the parts and their lengths, in hexadecimal. It compares secrets without a copy of them and is never
/// shown.
pub fn credentials_hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    format!("{:x}", hasher.finalize())
}
