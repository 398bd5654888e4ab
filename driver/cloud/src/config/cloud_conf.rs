//! `cloud.conf`, as the Go driver reads it: the same file serves both, and the cloud controller manager besides.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::ExposeSecret;

use super::gcfg::{self, Entry};
use super::raw::{Names, RawCloud, interface};
use super::{
    ApplicationCredential, Auth, BlockStorageOptions, CloudConfig, ConfigError, Domain, Interface, MetadataOptions,
    Place, Project, User, clouds_yaml,
};

const FILE: &str = "cloud.conf";
/// Sections of the cloud controller manager, which shares the file.
const FOREIGN: [&str; 4] = ["networking", "loadbalancer", "loadbalancerclass", "route"];

impl CloudConfig {
    /// Reads one `cloud.conf`. Unknown sections and keys become [`CloudConfig::warnings`].
    pub fn from_cloud_conf(text: &str) -> Result<Self, ConfigError> {
        understand(&gcfg::parse(text, FILE)?, FILE)
    }

    /// Reads files in `cloud.conf` format; of a key that several have, the last file's value counts. With `use-clouds`, what they
    /// leave open comes from `clouds-file`.
    pub fn load(files: &[PathBuf]) -> Result<Self, ConfigError> {
        let mut entries = Vec::new();
        for path in files {
            entries.append(&mut gcfg::parse(&read_file(path)?, &path.display().to_string())?);
        }
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        understand(&entries, &names.join(", "))
    }

    /// Writes a `cloud.conf` that [`CloudConfig::from_cloud_conf`] reads as the same configuration, secrets included. A CA that is
    /// held inline has no place in the format: the caller puts it into `ca_file`.
    pub fn to_cloud_conf(&self, ca_file: Option<&str>) -> String {
        let mut keys: Vec<(&str, String)> = vec![("auth-url", self.auth_url.clone())];
        match &self.auth {
            Auth::Password {
                user,
                password,
                project,
            } => {
                write_user(&mut keys, user);
                keys.push(("password", password.expose_secret().to_owned()));
                match project {
                    Project::Id(id) => keys.push(("tenant-id", id.clone())),
                    Project::Name { name, domain } => {
                        keys.push(("tenant-name", name.clone()));
                        keys.push(match domain {
                            Domain::Id(id) => ("tenant-domain-id", id.clone()),
                            Domain::Name(name) => ("tenant-domain-name", name.clone()),
                        });
                    }
                }
            }
            Auth::ApplicationCredential { credential, secret } => {
                match credential {
                    ApplicationCredential::Id(id) => keys.push(("application-credential-id", id.clone())),
                    ApplicationCredential::Name { name, user } => {
                        keys.push(("application-credential-name", name.clone()));
                        write_user(&mut keys, user);
                    }
                }
                keys.push(("application-credential-secret", secret.expose_secret().to_owned()));
            }
        }
        keys.extend(self.region.clone().map(|region| ("region", region)));
        if self.interface != Interface::Public {
            keys.push(("os-endpoint-type", self.interface.as_str().to_owned()));
        }
        let own_ca = || self.tls.ca_file.as_ref().map(|path| path.display().to_string());
        keys.extend(ca_file.map(str::to_owned).or_else(own_ca).map(|path| ("ca-file", path)));
        if self.tls.insecure {
            keys.push(("tls-insecure", "true".to_owned()));
        }
        let mut text = String::new();
        section(&mut text, "Global", &keys);
        let BlockStorageOptions {
            node_volume_attach_limit,
            rescan_on_resize,
            ignore_volume_az,
            ignore_volume_microversion,
        } = &self.block_storage;
        let mut keys: Vec<(&str, String)> = node_volume_attach_limit
            .iter()
            .map(|limit| ("node-volume-attach-limit", limit.to_string()))
            .collect();
        for (key, on) in [
            ("rescan-on-resize", rescan_on_resize),
            ("ignore-volume-az", ignore_volume_az),
            ("ignore-volume-microversion", ignore_volume_microversion),
        ] {
            if *on {
                keys.push((key, "true".to_owned()));
            }
        }
        section(&mut text, "BlockStorage", &keys);
        let mut keys = Vec::new();
        if self.metadata.search_order != MetadataOptions::default().search_order {
            keys.push(("search-order", self.metadata.search_order.join(",")));
        }
        keys.extend(
            self.metadata
                .request_timeout
                .map(|timeout| ("request-timeout", format!("{}ms", timeout.as_millis()))),
        );
        section(&mut text, "Metadata", &keys);
        text
    }
}

fn write_user(keys: &mut Vec<(&str, String)>, user: &User) {
    match user {
        User::Id(id) => keys.push(("user-id", id.clone())),
        User::Name { name, domain } => {
            keys.push(("username", name.clone()));
            keys.push(match domain {
                Domain::Id(id) => ("user-domain-id", id.clone()),
                Domain::Name(name) => ("user-domain-name", name.clone()),
            });
        }
    }
}

fn section(text: &mut String, name: &str, keys: &[(&str, String)]) {
    if keys.is_empty() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "[{name}]");
    for (key, value) in keys {
        let _ = writeln!(text, "{key} = {}", gcfg::quote(value));
    }
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::ReadFile {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

#[derive(Default)]
struct Settings {
    cloud: RawCloud,
    use_clouds: bool,
    clouds_file: Option<PathBuf>,
    cloud_name: String,
    block_storage: BlockStorageOptions,
    metadata: MetadataOptions,
    foreign: BTreeSet<String>,
}

fn understand(entries: &[Entry], file: &str) -> Result<CloudConfig, ConfigError> {
    let mut settings = Settings::default();
    for entry in entries {
        match entry.section.as_str() {
            "global" => {
                if let Some(name) = &entry.subsection {
                    return Err(ConfigError::Unsupported {
                        place: entry.place.clone(),
                        what: format!("section [Global {name:?}]"),
                        remedy: "several clouds in one driver are not supported yet: keep one [Global] section"
                            .to_owned(),
                    });
                }
                settings.global(entry)?;
            }
            "blockstorage" => settings.block_storage(entry)?,
            "metadata" => settings.metadata(entry)?,
            section if FOREIGN.contains(&section) => {}
            section => {
                settings.foreign.insert(format!(
                    "{}: section [{section}] is not known and has no effect",
                    entry.place.file
                ));
            }
        }
    }
    let Settings {
        mut cloud,
        use_clouds,
        clouds_file,
        cloud_name,
        block_storage,
        metadata,
        foreign,
    } = settings;
    cloud.warnings.extend(foreign);
    if use_clouds {
        let path = clouds_file.unwrap_or_else(|| PathBuf::from("/etc/openstack/clouds.yaml"));
        cloud = cloud.or(clouds_yaml::read(
            &read_file(&path)?,
            &path.display().to_string(),
            &cloud_name,
        )?);
    }
    cloud.understand(file, Names::CloudConf, block_storage, metadata)
}

impl Settings {
    fn global(&mut self, entry: &Entry) -> Result<(), ConfigError> {
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
            "tls-insecure" => {
                cloud.insecure = if text.is_none() && entry.value.is_some() {
                    None
                } else {
                    Some(flag(entry)?)
                }
            }
            "use-clouds" => self.use_clouds = flag(entry)?,
            "clouds-file" => self.clouds_file = text.map(Into::into),
            "cloud" => self.cloud_name = text.unwrap_or_default(),
            "trust-id" | "trustee-id" | "trustee-password" | "token" if text.is_some() => {
                return Err(ConfigError::Unsupported {
                    place: entry.place.clone(),
                    what: format!("[Global] {}", entry.key),
                    remedy: "log in by user name and password, or by an application credential".to_owned(),
                });
            }
            "trust-id" | "trustee-id" | "trustee-password" | "token" => {}
            "cert-file" | "key-file" => {
                let place = &entry.place;
                cloud.warnings.push(format!(
                    "{place}: [Global] {} has no effect: client certificates are not supported",
                    entry.key
                ));
            }
            _ => cloud.warnings.push(unknown(entry)),
        }
        Ok(())
    }

    fn block_storage(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        let options = &mut self.block_storage;
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
            // Obsolete, and in many examples.
            "bs-version" | "trust-device-path" => {}
            _ => self.cloud.warnings.push(unknown(entry)),
        }
        Ok(())
    }

    fn metadata(&mut self, entry: &Entry) -> Result<(), ConfigError> {
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
                    .find(|name| !matches!(name.as_str(), "configDrive" | "metadataService"))
                {
                    return Err(bad(
                        entry,
                        &format!("names {other:?}; known are configDrive and metadataService"),
                    ));
                }
                if !order.is_empty() {
                    self.metadata.search_order = order;
                }
            }
            "request-timeout" => {
                let timeout = entry.value.as_deref().and_then(duration);
                self.metadata.request_timeout =
                    Some(timeout.ok_or_else(|| bad(entry, "must be a time such as 5s, 500ms or 1m30s"))?)
                        .filter(|timeout| !timeout.is_zero());
            }
            _ => self.cloud.warnings.push(unknown(entry)),
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
    let Place { .. } = &entry.place;
    ConfigError::BadValue {
        place: entry.place.clone(),
        key: format!("[{}] {}", entry.section, entry.key),
        reason: reason.to_owned(),
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
