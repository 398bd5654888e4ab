// SPDX-License-Identifier: Apache-2.0
//! Files that a cloud.conf is read from.

use std::path::Path;

use csi_sources::files::read_config_text;

use super::super::ConfigError;

pub(in super::super) const FILE: &str = "cloud.conf";

pub(in super::super) fn read_file(path: &Path) -> Result<String, ConfigError> {
    read_config_text(path).map_err(|error| ConfigError::ReadFile {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Whether `use-clouds` may open a `clouds.yaml`.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum CloudsFile {
    Readable,
    /// The `cloud.conf` is a text, whose author may have no access to the files of this process.
    Refused,
}
