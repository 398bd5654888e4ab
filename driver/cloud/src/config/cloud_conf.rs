// SPDX-License-Identifier: Apache-2.0
//! `cloud.conf`, as the Go driver reads it: the same file serves both, and the cloud controller manager besides.

mod access;
mod settings;
mod value;

use std::path::PathBuf;

use super::gcfg::Entry;
use super::login::Original;
use super::raw::Names;
use super::{CloudConfig, ConfigError};
pub(super) use access::{CloudsFile, FILE, read_file};
pub(super) use settings::Settings;

impl Entry {
    /// The cloud that the section is about; empty for all, and for the cloud without a name.
    pub(super) fn cloud(&self) -> &str {
        self.subsection.as_deref().unwrap_or_default()
    }
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
