// SPDX-License-Identifier: Apache-2.0
//! `cloud.conf`, as the Go driver reads it: the same file serves both, and the cloud controller manager besides.

mod settings;
mod value;

use std::path::{Path, PathBuf};

use csi_sources::files::read_config_text;

use super::gcfg::{self, Entry};
use super::login::Original;
use super::raw::Names;
use super::{CloudConfig, ConfigError, Configuration};
pub(super) use settings::Settings;

pub(super) const FILE: &str = "cloud.conf";

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

/// Reads the entries of one cloud: its own section `[Global]`, and the other sections. Of the other sections, the ones for all clouds
/// are read first, and the ones for this cloud after them. Also returns which `clouds.yaml` was read.
pub(super) fn understand(
    entries: &[Entry],
    file: &str,
    name: &str,
    access: CloudsFile,
) -> Result<(CloudConfig, Option<PathBuf>), ConfigError> {
    let mut settings = Settings::default();
    let read = settings
        .read(entries, name)
        .and_then(|()| settings.add_clouds_yaml(file, access));
    let clouds_file = read.map_err(|error| error.with_ignored(settings.ignored()))?;
    let Settings { cloud, options, .. } = settings;
    let shown = match &clouds_file {
        Some(path) => format!("{file}, {}", path.display()),
        None => file.to_owned(),
    };
    let cloud = cloud.understand(&shown, Names::CloudConf, Original::GoDriver, options)?;
    Ok((cloud, clouds_file))
}

#[cfg(test)]
mod tests;
