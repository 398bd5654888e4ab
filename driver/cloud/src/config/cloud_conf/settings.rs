// SPDX-License-Identifier: Apache-2.0
//! The settings of one cloud, from the sections of a `cloud.conf` and the `clouds.yaml` that they name.

use std::path::PathBuf;

use super::super::clouds_yaml;
use super::super::gcfg::Entry;
use super::super::ignored::{IgnoredKey, UNKNOWN};
use super::super::keys::{self, ConfigKey, KeyEffect, KeyKind, KeyPlace, Setting, is_foreign_section};
use super::super::raw::{Options, RawCloud, SettingValue, interface};
use super::super::{ConfigError, FileLocation};
use super::value::{bad, duration, flag, integer, pair, text};
use super::{CloudsFile, read_file};

/// The maximum and default number of volumes per node in cinder-csi-plugin.
const GO_LIMIT: i64 = 256;

const NO_EFFECT: &str = "has no effect: with use-clouds and cloud the login is that of the clouds.yaml";

#[derive(Default)]
pub(in crate::config) struct Settings {
    pub(super) cloud: RawCloud,
    pub(super) options: Options,
    /// The location of an enabled `use-clouds`.
    use_clouds: Option<FileLocation>,
    clouds_file: Option<PathBuf>,
    /// The entry of the `clouds.yaml`, and the location of its name.
    cloud_name: Option<(String, FileLocation)>,
    /// The locations of the login settings.
    places: Vec<(Setting, FileLocation)>,
}

impl Settings {
    pub(in crate::config) fn into_cloud(self) -> RawCloud {
        self.cloud
    }

    pub(super) fn ignored(&self) -> &[IgnoredKey] {
        &self.cloud.ignored
    }

    pub(super) fn read(&mut self, entries: &[Entry], name: &str) -> Result<(), ConfigError> {
        let is_own = |entry: &&Entry| match entry.section.as_str() {
            "global" => entry.cloud() == name,
            "blockstorage" | "topology" => entry.cloud().is_empty() || entry.cloud() == name,
            _ => entry.cloud().is_empty(),
        };
        let (common, own): (Vec<_>, Vec<_>) = entries
            .iter()
            .filter(is_own)
            .partition(|entry| entry.cloud().is_empty());
        // Notes all keys without effect before the first error.
        for entry in common.iter().chain(&own) {
            self.note_ignored(entry);
        }
        self.note_foreign_sections(entries);
        for entry in common.into_iter().chain(own) {
            self.add(entry)?;
        }
        Ok(())
    }

    /// Reads one entry. A key that is not in the table is skipped.
    pub(in crate::config) fn add(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        self.add_to(&entry.section, entry)
    }

    /// Reads one entry as an entry of `section`.
    pub(in crate::config) fn add_to(&mut self, section: &str, entry: &Entry) -> Result<(), ConfigError> {
        let Some(row) = keys::cloud_conf_key(section, &entry.key) else {
            return Ok(());
        };
        let (KeyEffect::Used, Some(setting)) = (row.effect, row.setting) else {
            return Ok(());
        };
        if row.place == KeyPlace::Global {
            self.add_global(row, setting, entry)
        } else {
            self.add_option(setting, entry)
        }
    }

    fn add_global(&mut self, row: &ConfigKey, setting: Setting, entry: &Entry) -> Result<(), ConfigError> {
        match setting {
            Setting::UseClouds => self.use_clouds = flag(entry)?.then(|| entry.place.clone()),
            Setting::CloudsFile => self.clouds_file = text(entry)?.map(Into::into),
            Setting::CloudName => self.cloud_name = text(entry)?.map(|name| (name, entry.place.clone())),
            setting => {
                self.cloud.set(setting, value(row, entry)?);
                self.places.push((setting, entry.place.clone()));
            }
        }
        Ok(())
    }

    fn add_option(&mut self, setting: Setting, entry: &Entry) -> Result<(), ConfigError> {
        let Options {
            block_storage,
            topology,
            metadata,
        } = &mut self.options;
        match setting {
            Setting::NodeVolumeAttachLimit => {
                // For an out-of-range number, cinder-csi-plugin uses its default, which is the highest limit.
                let limit = u32::try_from(integer(entry)?.min(GO_LIMIT)).unwrap_or_default();
                block_storage.node_volume_attach_limit = Some(limit).filter(|limit| *limit > 0);
            }
            Setting::RescanOnResize => block_storage.rescan_on_resize = flag(entry)?,
            Setting::IgnoreVolumeAz => block_storage.ignore_volume_az = flag(entry)?,
            Setting::IgnoreVolumeMicroversion => block_storage.ignore_volume_microversion = flag(entry)?,
            Setting::Segment => {
                let (key, value) = pair(entry, "must be KEY=VALUE, as nodes have it by --additional-topology")?;
                topology.segments.insert(key, value);
            }
            Setting::ZoneMap => {
                let (nova, cinder) = pair(entry, "must be NOVA=CINDER, two names of zones")?;
                topology.zone_map.insert(nova, cinder);
            }
            Setting::SearchOrder => {
                let order = search_order(entry)?;
                if !order.is_empty() {
                    metadata.search_order = order;
                }
            }
            Setting::RequestTimeout => {
                let timeout = entry.value.as_deref().and_then(duration);
                let timeout = timeout.ok_or_else(|| bad(entry, "must be a time such as 5s, 500ms or 1m30s"))?;
                metadata.request_timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
            }
            _ => {}
        }
        Ok(())
    }

    fn note_ignored(&mut self, entry: &Entry) {
        let is_foreign = is_foreign_section(&entry.section);
        let is_section_known = keys::CLOUD_CONF.iter().any(|row| {
            row.place
                .section()
                .is_some_and(|name| name.eq_ignore_ascii_case(&entry.section))
        });
        if is_foreign || keys::cloud_conf_key(&entry.section, &entry.key).is_some() {
            return;
        }
        if is_section_known {
            self.cloud.ignored.push(IgnoredKey {
                place: entry.place.clone(),
                key: format!("key {} of section [{}]", entry.key, entry.section),
                reason: UNKNOWN,
            });
        } else {
            self.note_section(entry, format!("section [{}]", entry.section));
        }
    }

    /// Notes named sections that do not belong to a cloud.
    fn note_foreign_sections(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| !entry.cloud().is_empty()) {
            let section = entry.section.as_str();
            let is_known = matches!(section, "global" | "blockstorage" | "topology") || is_foreign_section(section);
            if !is_known {
                self.note_section(entry, format!("section [{section} {:?}]", entry.cloud()));
            }
        }
    }

    fn note_section(&mut self, entry: &Entry, key: String) {
        let place = FileLocation {
            file: entry.place.file.clone(),
            line: 0,
        };
        let ignored = IgnoredKey {
            place,
            key,
            reason: UNKNOWN,
        };
        if !self.cloud.ignored.contains(&ignored) {
            self.cloud.ignored.push(ignored);
        }
    }

    /// Fills unset settings from the `clouds.yaml`, as cinder-csi-plugin does. With `cloud`, only the login of the `clouds.yaml` counts.
    pub(super) fn add_clouds_yaml(&mut self, file: &str, access: CloudsFile) -> Result<Option<PathBuf>, ConfigError> {
        let Some(place) = self.use_clouds.clone() else {
            return match &self.cloud_name {
                None => Ok(None),
                Some((_, place)) => Err(unsupported(
                    place,
                    "[Global] cloud without use-clouds",
                    "set use-clouds = true and clouds-file, or remove the key",
                )),
            };
        };
        if matches!(access, CloudsFile::Refused) {
            return Err(unsupported(
                &place,
                "[Global] use-clouds",
                "no other file is read here: write the settings into [Global], or provide the clouds.yaml itself",
            ));
        }
        let path = self
            .clouds_file
            .clone()
            .unwrap_or_else(|| PathBuf::from("/etc/openstack/clouds.yaml"));
        let (shown, text) = (path.display().to_string(), read_file(&path)?);
        let name = self.cloud_name.as_ref().map_or("", |(name, _)| name.as_str());
        let yaml = clouds_yaml::read_as_go_driver(&text, &shown, name)?;
        if self.cloud_name.is_some() {
            self.drop_login(file);
        }
        self.cloud.complete(yaml, self.cloud_name.is_some());
        Ok(Some(path))
    }

    fn drop_login(&mut self, file: &str) {
        for setting in self.cloud.take(Setting::is_of_login) {
            let place = self.places.iter().rev().find(|(known, _)| *known == setting);
            let place = place.map(|(_, place)| place.clone());
            self.cloud.ignored.push(IgnoredKey {
                place: place.unwrap_or_else(|| FileLocation {
                    file: file.to_owned(),
                    line: 0,
                }),
                key: format!(
                    "[Global] {}",
                    keys::name_of(keys::CLOUD_CONF, setting).unwrap_or_default()
                ),
                reason: NO_EFFECT,
            });
        }
    }
}

fn unsupported(place: &FileLocation, what: &str, remedy: &str) -> ConfigError {
    ConfigError::Unsupported {
        place: place.clone(),
        what: what.to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// The value of a key of `[Global]`, by its type.
fn value(row: &ConfigKey, entry: &Entry) -> Result<Option<SettingValue>, ConfigError> {
    let written = text(entry);
    match row.kind {
        KeyKind::Boolean => match &entry.value {
            Some(value) if value.is_empty() => Ok(None),
            _ => Ok(Some(SettingValue::Flag(flag(entry)?))),
        },
        // For every other value, cinder-csi-plugin verifies certificates, also for values such as `yes`.
        KeyKind::OnlyTrue => match written?.as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(SettingValue::Flag(true))),
            Some("false") => Ok(Some(SettingValue::Flag(false))),
            Some(_) => Err(bad(entry, "must be true or false, in these words")),
        },
        KeyKind::Interface => {
            let Some(text) = written? else { return Ok(None) };
            let interface = interface(&text).ok_or_else(|| bad(entry, "must be public, internal or admin"))?;
            Ok(Some(SettingValue::Interface(interface)))
        }
        _ => Ok(written?.map(Into::into)),
    }
}

fn search_order(entry: &Entry) -> Result<Vec<String>, ConfigError> {
    let order: Vec<String> = text(entry)?
        .iter()
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    let is_known = |name: &str| matches!(name, "configDrive" | "metadataService" | "cloudInit" | "dmi");
    match order.iter().find(|name| !is_known(name)) {
        Some(other) => Err(bad(
            entry,
            &format!("names {other:?}; known are configDrive, metadataService, cloudInit and dmi"),
        )),
        None => Ok(order),
    }
}
