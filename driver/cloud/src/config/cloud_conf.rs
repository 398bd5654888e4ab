// SPDX-License-Identifier: Apache-2.0
//! `cloud.conf`, as the Go driver reads it. The same file serves both drivers and the cloud controller manager.

mod access;
mod settings;
mod value;

use std::path::PathBuf;

use super::gcfg::Entry;
use super::login::Original;
use super::raw::FileFormat;
use super::{CloudConfig, ConfigError};
pub(super) use access::{CloudsFile, FILE, read_file};
pub(super) use settings::Settings;

impl Entry {
    /// The cloud of the section; empty for a section of all clouds, and of the cloud without a name.
    pub(super) fn cloud(&self) -> &str {
        self.subsection.as_deref().unwrap_or_default()
    }
}

/// Reads the entries of one cloud: its own section `[Global]`, and the other sections. Of the other sections, those
/// of all clouds are read first, and those of this cloud after them. Also returns the path of the `clouds.yaml` in
/// use.
pub(super) fn read_cloud(
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
    let cloud = cloud.validate(&shown, FileFormat::CloudConf, Original::GoDriver, options)?;
    Ok((cloud, clouds_file))
}

#[cfg(test)]
mod tests;
