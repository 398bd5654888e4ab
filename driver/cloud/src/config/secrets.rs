// SPDX-License-Identifier: Apache-2.0
//! Credentials of a request, in CSI secrets: the keys of `[Global]`, and the CA inline.

use std::collections::BTreeMap;

use super::cloud_conf::Settings;
use super::gcfg::Entry;
use super::keys::Setting;
use super::login::Original;
use super::raw::{FileFormat, Options};
use super::{CloudConfig, ConfigError, FileLocation};

/// The location of the keys, for errors.
const PLACE: &str = "secrets";
/// The CA as PEM, in place of the file that `ca-file` names.
const CA_CERT: &str = "ca-cert";
/// Keys that name files of this process, which a request may not do.
const FILES: [&str; 5] = ["ca-file", "cert-file", "key-file", "use-clouds", "clouds-file"];

impl CloudConfig {
    /// Reads full credentials from a request's secrets; `None` for secrets without `auth-url`. The keys are those of
    /// `[Global]`, and `ca-cert` for a CA in PEM; other keys are ignored. The options come from `base`, and so does
    /// the CA unless the secrets contain one. Errors name keys and never values.
    pub fn from_secrets(secrets: &BTreeMap<String, String>, base: &Self) -> Result<Option<Self>, ConfigError> {
        if secrets.get("auth-url").is_none_or(String::is_empty) {
            return Ok(None);
        }
        let place = || FileLocation {
            file: PLACE.to_owned(),
            line: 0,
        };
        if let Some(key) = FILES.iter().find(|key| secrets.contains_key(**key)) {
            return Err(ConfigError::Unsupported {
                place: place(),
                what: (*key).to_owned(),
                remedy: format!("secrets cannot name files of the driver; give the CA inline as {CA_CERT}"),
            });
        }
        let mut settings = Settings::default();
        for (key, value) in secrets.iter().filter(|(key, _)| *key != "cloud" && *key != CA_CERT) {
            let entry = Entry {
                section: PLACE.to_owned(),
                subsection: None,
                key: key.clone(),
                value: Some(value.clone()),
                place: place(),
            };
            settings.add_to("global", &entry)?;
        }
        let mut raw = settings.into_cloud();
        if let Some(pem) = secrets.get(CA_CERT) {
            raw.set(Setting::CaPem, Some(pem.clone().into()));
        }
        let own_ca = raw.has(Setting::CaPem) || raw.flag(Setting::Insecure) == Some(true);
        let options = Options {
            block_storage: base.block_storage.clone(),
            topology: base.topology.clone(),
            metadata: base.metadata.clone(),
        };
        let mut config = raw.validate(PLACE, FileFormat::CloudConf, Original::GoDriver, options)?;
        if !own_ca {
            config.tls.ca_file.clone_from(&base.tls.ca_file);
            config.tls.ca_pem.clone_from(&base.tls.ca_pem);
            config.tls.unreadable.clone_from(&base.tls.unreadable);
            config.tls.also_public_roots |= base.tls.also_public_roots;
        }
        Ok(Some(config))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::Auth;
    use super::*;

    const BASE: &str = "[Global]\nauth-url=https://a\nuser-id=u\npassword=p\ntenant-id=t\nca-file=/ca\n[BlockStorage]\nignore-volume-az=true\n";

    fn read(pairs: &[(&str, &str)]) -> Result<Option<CloudConfig>, ConfigError> {
        let secrets = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        CloudConfig::from_secrets(&secrets.collect(), &CloudConfig::from_cloud_conf(BASE).expect("good"))
    }

    #[test]
    fn secrets_without_url_have_no_credentials() {
        let config = read(&[("cloud", "west"), ("password", "somebody else's")]).expect("good");
        assert!(config.is_none());
    }

    #[test]
    fn credentials_inherit_options_and_ca() {
        let config = read(&[
            ("auth-url", "https://b"),
            ("application-credential-id", "i"),
            ("application-credential-secret", "s"),
            ("username-of-another-program", "x"),
        ])
        .expect("good")
        .expect("credentials");
        assert!(matches!(config.auth, Auth::ApplicationCredential { .. }));
        assert!(config.block_storage.ignore_volume_az && config.tls.ca_file.is_some());
        let config = read(&[
            ("auth-url", "https://b"),
            ("token", "t"),
            ("tenant-id", "p"),
            ("ca-cert", "PEM"),
        ])
        .expect("good")
        .expect("credentials");
        assert_eq!((config.tls.ca_file, config.tls.ca_pem.as_deref()), (None, Some("PEM")));
    }

    #[rstest]
    #[case(&[("auth-url", "https://b"), ("password", "hunter2")], "username is missing")]
    #[case(&[("auth-url", "hunter2"), ("user-id", "u"), ("password", "hunter2"), ("tenant-id", "t")], "auth-url must begin with")]
    #[case(&[("auth-url", "https://b"), ("ca-file", "/hunter2")], "ca-file is not supported")]
    #[case(&[("auth-url", "https://b"), ("tls-insecure", "hunter2")], "tls-insecure must be true or false")]
    #[case(&[("auth-url", "https://b"), ("os-endpoint-type", "hunter2")], "os-endpoint-type must be public")]
    fn errors_name_keys_without_values(#[case] pairs: &[(&str, &str)], #[case] expected: &str) {
        let error = read(pairs).expect_err("bad").to_string();
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
}
