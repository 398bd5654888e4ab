// SPDX-License-Identifier: Apache-2.0
//! The settings of a cloud as cinder-csi-plugin has them, for callers that compare it with another configuration.

use std::fmt;

use secrecy::SecretString;

use super::keys::Setting;
use super::login::{self, Original};
use super::raw::{FileFormat, RawCloud, ReadContext, SettingValue};
use super::{Auth, ConfigError, Interface, clouds_yaml};

/// The name of the file in errors about a login.
const CLOUD_CONF: &str = "cloud.conf";
const CLOUDS_YAML: &str = "clouds.yaml";

/// The settings of one cloud as cinder-csi-plugin has them. A setting that this driver refuses does not hide the
/// others, in contrast to [`super::CloudConfig`]. Its `Debug` shows no value.
#[derive(Clone, Default)]
pub struct UnvalidatedCloud(RawCloud);

impl UnvalidatedCloud {
    /// Creates the settings from texts of a section `[Global]`.
    pub fn from_texts(texts: impl IntoIterator<Item = (Setting, SecretString)>) -> Self {
        let mut raw = RawCloud::default();
        for (setting, text) in texts {
            raw.set(setting, Some(SettingValue::Text(text)));
        }
        Self(raw)
    }

    /// Fills unset settings from an entry of a `clouds.yaml`, as `use-clouds` does; from the only entry when `cloud`
    /// is empty. Returns the errors of keys that this driver refuses. Their values are unset.
    pub fn add_clouds_yaml(&mut self, text: &str, cloud: &str) -> Result<Vec<ConfigError>, ConfigError> {
        let (yaml, refused) = clouds_yaml::read_each_key(text, cloud)?;
        self.0.complete(yaml, !cloud.is_empty());
        Ok(refused)
    }

    /// The text of a setting; `None` when it is unset or not a text.
    pub fn text(&self, setting: Setting) -> Option<&str> {
        self.0.text(setting)
    }

    /// The interface of a `clouds.yaml`.
    pub fn interface(&self) -> Option<Interface> {
        self.0.interface(Setting::Interface)
    }

    /// Whether it has a part of a login.
    pub fn has_login(&self) -> bool {
        self.0.keys().any(is_of_any_login)
    }

    /// Returns the login, or why this driver does not accept it. `is_of_yaml` selects the names of keys in the error.
    pub fn login(&self, is_of_yaml: bool) -> Result<Auth, ConfigError> {
        let context = if is_of_yaml {
            ReadContext {
                file: CLOUDS_YAML,
                names: FileFormat::CloudsYaml,
            }
        } else {
            ReadContext {
                file: CLOUD_CONF,
                names: FileFormat::CloudConf,
            }
        };
        login::resolve(&self.0, &context, Original::GoDriver)
    }
}

fn is_of_any_login(setting: Setting) -> bool {
    setting.is_of_login()
        || matches!(
            setting,
            Setting::TrustId | Setting::TrusteeId | Setting::TrusteePassword
        )
}

impl fmt::Debug for UnvalidatedCloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl PartialEq for UnvalidatedCloud {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |setting: Setting| {
            self.text(setting) == other.text(setting)
                && self.0.flag(setting) == other.0.flag(setting)
                && self.0.interface(setting) == other.0.interface(setting)
        };
        self.0.keys().chain(other.0.keys()).all(is_same)
    }
}

impl Eq for UnvalidatedCloud {}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_cloud(texts: &[(Setting, &str)]) -> UnvalidatedCloud {
        UnvalidatedCloud::from_texts(texts.iter().map(|(setting, text)| (*setting, (*text).into())))
    }

    #[test]
    fn refused_key_hides_no_other() {
        let yaml = "clouds: {c: {profile: ovh, region_name: R, interface: outside, cert: /c, auth: {auth_url: 'https://{x}', user_id: u, \
                    password: hunter2, project_id: p}}}";
        let mut cloud = mk_cloud(&[]);
        let refused = cloud.add_clouds_yaml(yaml, "c").expect("an entry");
        let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
        assert_eq!(refused.len(), 3, "{refused:?}");
        assert!(refused[0].contains("clouds.c.profile is not supported"), "{refused:?}");
        assert_eq!((cloud.text(Setting::Region), cloud.interface()), (Some("R"), None));
        assert!(matches!(cloud.login(true), Ok(Auth::Password { .. })));
        assert!(!format!("{cloud:?} {refused:?}").contains("hunter2"));
    }

    /// gophercloud fills each key on its own, and takes the login of a named entry only from there.
    #[test]
    fn clouds_yaml_fills_each_key() {
        let yaml = "clouds: {c: {key: /k, auth: {auth_url: 'https://k', application_credential_id: i, application_credential_secret: s}}}";
        let own = [
            (Setting::CertFile, "/c"),
            (Setting::Password, "p"),
            (Setting::UserId, "u"),
        ];
        let mut cloud = mk_cloud(&own);
        assert_eq!(cloud.add_clouds_yaml(yaml, "c").expect("an entry").len(), 0);
        assert_eq!(
            (cloud.text(Setting::CertFile), cloud.text(Setting::KeyFile)),
            (Some("/c"), Some("/k"))
        );
        assert!(matches!(cloud.login(true), Ok(Auth::ApplicationCredential { .. })));
        let mut cloud = mk_cloud(&own);
        assert_eq!(cloud.add_clouds_yaml(yaml, "").expect("an entry").len(), 0);
        let error = cloud.login(false).expect_err("two logins");
        let (problem, remedy) = error.problem_and_remedy();
        assert!(
            problem.contains("the login by password beside application-credential-id"),
            "{problem}"
        );
        assert!(
            remedy.is_some_and(|remedy| remedy.contains("keep the keys of one login")),
            "{remedy:?}"
        );
    }
}
