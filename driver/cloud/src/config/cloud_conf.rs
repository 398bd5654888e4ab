// SPDX-License-Identifier: Apache-2.0
//! `cloud.conf`, as the Go driver reads it: the same file serves both, and the cloud controller manager besides.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_sources::files::read_config_text;

use super::gcfg::{self, Entry};
use super::keys;
use super::raw::{Names, Options, RawCloud, interface};
use super::{CloudConfig, ConfigError, Configuration, Place, clouds_yaml};

pub(super) const FILE: &str = "cloud.conf";
/// Sections of the cloud controller manager, which shares the file.
const FOREIGN: [&str; 4] = ["networking", "loadbalancer", "loadbalancerclass", "route"];

impl CloudConfig {
    /// Parses one `cloud.conf` of one cloud, in the section without a name. Unknown sections and keys become
    /// [`CloudConfig::warnings`]. Opens no file: `use-clouds` is refused, and [`super::Tls::read_files`] reads certificates.
    pub fn from_cloud_conf(text: &str) -> Result<Self, ConfigError> {
        let entries = gcfg::parse(text, FILE)?;
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
        understand(&entries, FILE, "", CloudsFile::Refused).map(|(cloud, _)| cloud)
    }

    /// Reads files of one cloud, in the section without a name, as [`Configuration::load`] does.
    pub fn load(files: &[PathBuf]) -> Result<Self, ConfigError> {
        let configuration = Configuration::load(files, &[String::new()])?;
        configuration
            .clouds
            .into_values()
            .next()
            .ok_or_else(|| ConfigError::Missing {
                file: FILE.to_owned(),
                key: "section [Global]".to_owned(),
                remedy: "add it".to_owned(),
            })
    }
}

/// A key that a `cloud.conf` has, without its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfKey {
    /// The section, in lower case.
    pub section: String,
    /// The cloud that the section names.
    pub cloud: Option<String>,
    /// In lower case.
    pub key: String,
    /// Whether it means something here, or to the cloud controller manager, which shares the file.
    pub is_known: bool,
}

/// The keys of a `cloud.conf`, each once and sorted.
pub fn keys_of(text: &str) -> Result<BTreeSet<ConfKey>, ConfigError> {
    let is_known = |entry: &Entry| {
        let mut settings = Settings::default();
        // A value that is refused is one of a key that is known.
        drop(match entry.section.as_str() {
            "global" => settings.global(entry),
            _ => settings.other(entry),
        });
        settings.cloud.warnings.is_empty() && settings.foreign.is_empty()
    };
    let entries = gcfg::parse(text, FILE)?;
    let keys = entries.into_iter().map(|entry| ConfKey {
        is_known: is_known(&entry),
        section: entry.section,
        cloud: entry.subsection,
        key: entry.key,
    });
    Ok(keys.collect())
}

impl Entry {
    /// The cloud that the section is about; empty for all, and for the cloud without a name.
    pub(super) fn cloud(&self) -> &str {
        self.subsection.as_deref().unwrap_or_default()
    }
}

pub(super) fn read_file(path: &Path) -> Result<String, ConfigError> {
    read_config_text(path).map_err(|error| ConfigError::ReadFile {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Whether `use-clouds` may lead to a `clouds.yaml`.
#[derive(Debug, Clone, Copy)]
pub(super) enum CloudsFile {
    Readable,
    /// The `cloud.conf` is a text. Its author may have no access to the files of this process.
    Refused,
}

#[derive(Default)]
pub(super) struct Settings {
    cloud: RawCloud,
    /// Where `use-clouds` is switched on.
    use_clouds: Option<Place>,
    clouds_file: Option<PathBuf>,
    cloud_name: String,
    options: Options,
    foreign: BTreeSet<String>,
}

/// Understands what the entries say about one cloud: its own section `[Global]`, and of the other sections first those for all
/// clouds, then its own. Also tells which `clouds.yaml` was read.
pub(super) fn understand(
    entries: &[Entry],
    file: &str,
    name: &str,
    access: CloudsFile,
) -> Result<(CloudConfig, Option<PathBuf>), ConfigError> {
    let mut settings = Settings::default();
    for entry in entries.iter().filter(|entry| entry.cloud().is_empty()) {
        match entry.section.as_str() {
            "global" if name.is_empty() => settings.global(entry)?,
            "global" => {}
            _ => settings.other(entry)?,
        }
    }
    for entry in entries.iter().filter(|entry| !entry.cloud().is_empty()) {
        match entry.section.as_str() {
            "global" if entry.cloud() == name => settings.global(entry)?,
            "blockstorage" | "topology" if entry.cloud() == name => settings.other(entry)?,
            "global" | "blockstorage" | "topology" => {}
            section if FOREIGN.contains(&section) => {}
            section => {
                settings.foreign.insert(format!(
                    "{}: section [{section} {:?}] is not known and has no effect",
                    entry.place.file,
                    entry.cloud()
                ));
            }
        }
    }
    let Settings {
        mut cloud,
        use_clouds,
        clouds_file,
        cloud_name,
        options,
        foreign,
    } = settings;
    cloud.warnings.extend(foreign);
    let mut read = None;
    if let Some(place) = use_clouds {
        if matches!(access, CloudsFile::Refused) {
            return Err(ConfigError::Unsupported {
                place,
                what: "[Global] use-clouds".to_owned(),
                remedy:
                    "no other file is read here: write the settings into [Global], or provide the clouds.yaml itself"
                        .to_owned(),
            });
        }
        let path = clouds_file.unwrap_or_else(|| PathBuf::from("/etc/openstack/clouds.yaml"));
        cloud = cloud.or(clouds_yaml::read(
            &read_file(&path)?,
            &path.display().to_string(),
            &cloud_name,
        )?);
        read = Some(path);
    }
    let cloud = cloud.understand(file, Names::CloudConf, options)?;
    Ok((cloud, read))
}

impl Settings {
    pub(super) fn into_cloud(self) -> RawCloud {
        self.cloud
    }

    fn other(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        match entry.section.as_str() {
            "blockstorage" => self.block_storage(entry)?,
            "topology" => self.topology(entry)?,
            "metadata" => self.metadata(entry)?,
            section if FOREIGN.contains(&section) => {}
            section => {
                self.foreign.insert(format!(
                    "{}: section [{section}] is not known and has no effect",
                    entry.place.file
                ));
            }
        }
        Ok(())
    }

    /// Whether the section has the key of the entry. One that it has not is for the log.
    fn knows(&mut self, section: &str, entry: &Entry) -> bool {
        let is_known = keys::is_known(section, &entry.key);
        if !is_known {
            self.cloud.warnings.push(unknown(entry));
        }
        is_known
    }

    fn topology(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        if !self.knows("topology", entry) {
            return Ok(());
        }
        let options = &mut self.options.topology;
        let (pairs, form) = match entry.key.as_str() {
            "segment" => (
                &mut options.segments,
                "must be KEY=VALUE, as nodes have it by --additional-topology",
            ),
            "zone-map" => (&mut options.zone_map, "must be NOVA=CINDER, two names of zones"),
            _ => return Ok(()),
        };
        let pair = entry.value.as_deref().and_then(|value| value.split_once('='));
        let (left, right) = pair
            .map(|(left, right)| (left.trim_matches([' ', '\t']), right.trim_matches([' ', '\t'])))
            .filter(|(left, right)| !left.is_empty() && !right.is_empty())
            .ok_or_else(|| bad(entry, form))?;
        pairs.insert(left.to_owned(), right.to_owned());
        Ok(())
    }

    pub(super) fn global(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        if !self.knows("global", entry) {
            return Ok(());
        }
        // The Go driver takes an empty value for one that is not set.
        let text = entry.value.clone().filter(|value| !value.is_empty());
        let cloud = &mut self.cloud;
        match entry.key.as_str() {
            "auth-url" => cloud.auth_url = text,
            "username" => cloud.username = text,
            "user-id" => cloud.user_id = text,
            "password" => cloud.password = text.map(Into::into),
            "tenant-id" => cloud.project_id = text,
            "tenant-name" => cloud.project_name = text,
            "domain-id" => cloud.domain_id = text,
            "domain-name" => cloud.domain_name = text,
            "tenant-domain-id" => cloud.project_domain_id = text,
            "tenant-domain-name" => cloud.project_domain_name = text,
            "user-domain-id" => cloud.user_domain_id = text,
            "user-domain-name" => cloud.user_domain_name = text,
            "application-credential-id" => cloud.credential_id = text,
            "application-credential-name" => cloud.credential_name = text,
            "application-credential-secret" => cloud.credential_secret = text.map(Into::into),
            "region" => cloud.region = text,
            "os-endpoint-type" => {
                cloud.interface = match text {
                    None => None,
                    Some(text) => {
                        Some(interface(&text).ok_or_else(|| bad(entry, "must be public, internal or admin"))?)
                    }
                }
            }
            "ca-file" => cloud.ca_file = text.map(Into::into),
            "tls-insecure" => cloud.insecure = switch(entry)?,
            "also-public-roots" => cloud.also_public_roots = switch(entry)?,
            "allow-http-endpoints" => cloud.allow_http_endpoints = switch(entry)?,
            "use-clouds" => self.use_clouds = flag(entry)?.then(|| entry.place.clone()),
            "clouds-file" => self.clouds_file = text.map(Into::into),
            "cloud" => self.cloud_name = text.unwrap_or_default(),
            "trust-id" => cloud.trust_id = text,
            "trustee-id" => cloud.trustee_id = text,
            "trustee-password" => cloud.trustee_password = text.map(Into::into),
            "token" => cloud.token = text.map(Into::into),
            "cert-file" => cloud.cert_file = text.map(Into::into),
            "key-file" => cloud.key_file = text.map(Into::into),
            _ => {}
        }
        Ok(())
    }

    fn block_storage(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        if !self.knows("blockstorage", entry) {
            return Ok(());
        }
        let options = &mut self.options.block_storage;
        match entry.key.as_str() {
            "node-volume-attach-limit" => {
                let limit: u32 = entry
                    .value
                    .as_deref()
                    .and_then(|value| value.trim().parse().ok())
                    .ok_or_else(|| bad(entry, "must be a number from 0 on"))?;
                options.node_volume_attach_limit = Some(limit).filter(|limit| *limit > 0);
            }
            "rescan-on-resize" => options.rescan_on_resize = flag(entry)?,
            "ignore-volume-az" => options.ignore_volume_az = flag(entry)?,
            "ignore-volume-microversion" => options.ignore_volume_microversion = flag(entry)?,
            // Obsolete, and in many examples: `bs-version`, `trust-device-path`.
            _ => {}
        }
        Ok(())
    }

    fn metadata(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        if !self.knows("metadata", entry) {
            return Ok(());
        }
        match entry.key.as_str() {
            "search-order" => {
                let order: Vec<String> = entry
                    .value
                    .iter()
                    .flat_map(|value| value.split(','))
                    .map(|name| name.trim().to_owned())
                    .filter(|name| !name.is_empty())
                    .collect();
                if let Some(other) = order
                    .iter()
                    .find(|name| !matches!(name.as_str(), "configDrive" | "metadataService" | "cloudInit" | "dmi"))
                {
                    return Err(bad(
                        entry,
                        &format!("names {other:?}; known are configDrive, metadataService, cloudInit and dmi"),
                    ));
                }
                if !order.is_empty() {
                    self.options.metadata.search_order = order;
                }
            }
            "request-timeout" => {
                let timeout = entry.value.as_deref().and_then(duration);
                self.options.metadata.request_timeout =
                    Some(timeout.ok_or_else(|| bad(entry, "must be a time such as 5s, 500ms or 1m30s"))?)
                        .filter(|timeout| !timeout.is_zero());
            }
            _ => {}
        }
        Ok(())
    }
}

fn unknown(entry: &Entry) -> String {
    format!(
        "{}: key {} of section [{}] is not known and has no effect",
        entry.place, entry.key, entry.section
    )
}

fn bad(entry: &Entry, reason: &str) -> ConfigError {
    ConfigError::BadValue {
        place: entry.place.clone(),
        key: format!("[{}] {}", entry.section, entry.key),
        reason: reason.to_owned(),
    }
}

/// A truth value; an empty one is not set.
fn switch(entry: &Entry) -> Result<Option<bool>, ConfigError> {
    match &entry.value {
        Some(value) if value.is_empty() => Ok(None),
        _ => flag(entry).map(Some),
    }
}

/// A truth value as gcfg reads it; a name without `=` is true.
fn flag(entry: &Entry) -> Result<bool, ConfigError> {
    match entry.value.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "t" | "yes" | "on" | "1") => Ok(true),
        Some("false" | "f" | "no" | "off" | "0") => Ok(false),
        Some(_) => Err(bad(entry, "must be true or false")),
    }
}

/// A time as Go writes it: `1m30s`, `500ms`, `1.5s`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, tail) = rest.split_at(unit_at);
        let number: f64 = number.parse().ok()?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = tail;
    }
    Some(sum)
}

#[cfg(test)]
mod tests;
