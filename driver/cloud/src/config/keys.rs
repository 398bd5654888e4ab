// SPDX-License-Identifier: Apache-2.0
//! The table of the keys of a `cloud.conf` and of a cloud in a `clouds.yaml`, with the meaning of each key.
//!
//! The readers of both formats use this table. The reference page of the keys, the settings of the driver and the
//! check of a migration use the same rows:
//!
//! * [`ConfigKey::names`] are the key and its aliases, in the order of increasing precedence,
//! * [`ConfigKey::kind`] is the type that the original reads, with its spellings of true and false,
//! * [`ConfigKey::place`] is the section, or the mapping, that has the key,
//! * [`ConfigKey::precedence`] decides which location counts where a key is allowed in two,
//! * [`ConfigKey::effect`] is the effect of the key in this driver.

mod cloud_conf;
mod clouds_yaml;
mod key;
#[cfg(test)]
mod page;
mod services;

pub use cloud_conf::CLOUD_CONF;
pub use clouds_yaml::CLOUDS_YAML;
pub use key::{ConfigKey, KeyEffect, KeyKind, KeyPlace, Precedence, Setting};
pub(super) use services::is_of_other_service;

/// Whether a section, in lower case, belongs to the cloud controller manager, which shares the file.
pub fn is_foreign_section(section: &str) -> bool {
    ["networking", "loadbalancer", "loadbalancerclass", "route"].contains(&section)
}

/// Returns the key of a section of a `cloud.conf`, both in lower case.
pub fn cloud_conf_key(section: &str, key: &str) -> Option<&'static ConfigKey> {
    CLOUD_CONF.iter().find(|row| {
        let of_section = row
            .place
            .section()
            .is_some_and(|name| name.eq_ignore_ascii_case(section));
        of_section && row.names.contains(&key)
    })
}

/// Returns the key of a cloud in a `clouds.yaml`, written with underscores: in the mapping `auth`, or outside it.
pub fn clouds_yaml_key(is_in_auth: bool, key: &str) -> Option<&'static ConfigKey> {
    let is_here = |row: &&ConfigKey| !is_in_auth || row.place == KeyPlace::Login;
    CLOUDS_YAML.iter().filter(is_here).find(|row| row.names.contains(&key))
}

/// The usual name of the key of a setting in one of the two tables.
pub(super) fn name_of(table: &'static [ConfigKey], setting: Setting) -> Option<&'static str> {
    let row = table.iter().find(|row| row.setting == Some(setting));
    row.map(ConfigKey::name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_in_each_location() {
        for table in [CLOUD_CONF, CLOUDS_YAML] {
            let mut known = BTreeSet::new();
            for row in table {
                assert!(!row.names.is_empty(), "{row:?}");
                for name in row.names {
                    assert!(known.insert((row.place.section(), *name)), "{name} is there twice");
                }
                for name in row.go_names {
                    assert!(row.names.contains(name), "{name} is not a name of {}", row.name());
                }
            }
        }
    }

    #[test]
    fn only_used_keys_have_a_setting() {
        for row in CLOUD_CONF.iter().chain(CLOUDS_YAML) {
            assert_eq!(row.effect == KeyEffect::Used, row.setting.is_some(), "{row:?}");
        }
    }

    #[test]
    fn login_settings_exclude_address_trust_and_region() {
        let is_of_login = [
            Setting::Username,
            Setting::CredentialSecret,
            Setting::DefaultDomain,
            Setting::Token,
        ];
        assert!(is_of_login.iter().all(|setting| setting.is_of_login()));
        let is_other = [
            Setting::AuthUrl,
            Setting::TrustId,
            Setting::TrusteePassword,
            Setting::Region,
        ];
        assert!(!is_other.iter().any(|setting| setting.is_of_login()));
    }
}
