// SPDX-License-Identifier: Apache-2.0
//! `clouds.yaml`, one cloud of it.

use serde_json::{Map, Value};

use super::raw::{Names, Options, RawCloud, interface};
use super::{CloudConfig, ConfigError, Place, refuse_yaml};

const FILE: &str = "clouds.yaml";

impl CloudConfig {
    /// Reads one cloud of a `clouds.yaml`; the only one when `cloud` is empty. Login by password, application credential, trust or token.
    pub fn from_clouds_yaml(text: &str, cloud: &str) -> Result<Self, ConfigError> {
        read(text, FILE, cloud)?.understand(FILE, Names::CloudsYaml, Options::default())
    }
}

fn place(file: &str) -> Place {
    Place {
        file: file.to_owned(),
        line: 0,
    }
}

/// One cloud of the text of a `clouds.yaml`.
pub(super) fn read(text: &str, file: &str, cloud: &str) -> Result<RawCloud, ConfigError> {
    if let Some(reason) = refuse_yaml(text) {
        return Err(ConfigError::Parse {
            place: place(file),
            reason,
        });
    }
    // The parser's own message may quote the text, and with it a secret: only the line is told.
    let document: Value = serde_yaml::from_str(text).map_err(|error| ConfigError::Parse {
        place: Place {
            file: file.to_owned(),
            line: error.location().map_or(0, |at| at.line()),
        },
        reason: "this is not YAML; check indentation and quotes".to_owned(),
    })?;
    let Some(clouds) = document.get("clouds").and_then(Value::as_object) else {
        return Err(ConfigError::Parse {
            place: place(file),
            reason: "there is no mapping `clouds` at the top".to_owned(),
        });
    };
    let found = match (cloud, clouds.len()) {
        ("", 1) => clouds.iter().next(),
        _ => clouds.get_key_value(cloud),
    };
    let Some((name, entry)) = found else {
        let known: Vec<&str> = clouds.keys().map(String::as_str).collect();
        return Err(ConfigError::UnknownCloud {
            file: file.to_owned(),
            cloud: cloud.to_owned(),
            known: if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            },
        });
    };
    let nothing = Map::new();
    let entry = entry.as_object().unwrap_or(&nothing);
    let auth = entry.get("auth").and_then(Value::as_object).unwrap_or(&nothing);
    Reader { file, cloud: name }.cloud(entry, auth)
}

struct Reader<'a> {
    file: &'a str,
    cloud: &'a str,
}

impl Reader<'_> {
    fn cloud(&self, entry: &Map<String, Value>, auth: &Map<String, Value>) -> Result<RawCloud, ConfigError> {
        let mut raw = RawCloud::default();
        for (key, value) in auth {
            let name = format!("auth.{key}");
            let Some(text) = self.text(&name, value)? else { continue };
            match key.as_str() {
                "auth_url" => raw.auth_url = Some(text),
                "username" => raw.username = Some(text),
                "user_id" => raw.user_id = Some(text),
                "password" => raw.password = Some(text.into()),
                "project_id" | "tenant_id" => raw.project_id = Some(text),
                "project_name" | "tenant_name" => raw.project_name = Some(text),
                "domain_id" | "default_domain_id" => raw.domain_id = Some(text),
                "domain_name" | "default_domain_name" => raw.domain_name = Some(text),
                "project_domain_id" => raw.project_domain_id = Some(text),
                "project_domain_name" => raw.project_domain_name = Some(text),
                "user_domain_id" => raw.user_domain_id = Some(text),
                "user_domain_name" => raw.user_domain_name = Some(text),
                "application_credential_id" => raw.credential_id = Some(text),
                "application_credential_name" => raw.credential_name = Some(text),
                "application_credential_secret" => raw.credential_secret = Some(text.into()),
                "token" => raw.token = Some(text.into()),
                "trust_id" => raw.trust_id = Some(text),
                _ => raw.warnings.push(self.unknown(&name)),
            }
        }
        for (key, value) in entry {
            match key.as_str() {
                "auth" | "identity_api_version" | "volume_api_version" => {}
                "region_name" => raw.region = self.text(key, value)?,
                "interface" | "endpoint_type" => {
                    if let Some(text) = self.text(key, value)? {
                        raw.interface =
                            Some(interface(&text).ok_or_else(|| self.bad(key, "must be public, internal or admin"))?);
                    }
                }
                "cacert" => raw.ca_file = self.text(key, value)?.map(Into::into),
                "cert" => raw.cert_file = self.text(key, value)?.map(Into::into),
                "key" => raw.key_file = self.text(key, value)?.map(Into::into),
                "verify" => raw.insecure = self.flag(key, value)?.map(|verify| !verify).or(raw.insecure),
                "insecure" => raw.insecure = self.flag(key, value)?.or(raw.insecure),
                "also_public_roots" => raw.also_public_roots = self.flag(key, value)?,
                "allow_http_endpoints" => raw.allow_http_endpoints = self.flag(key, value)?,
                "auth_type" => match self.text(key, value)?.as_deref() {
                    None
                    | Some("password" | "v3password" | "v3applicationcredential" | "token" | "v3token" | "v3trust") => {
                    }
                    Some(_) => return Err(self.unsupported(key)),
                },
                _ => raw.warnings.push(self.unknown(key)),
            }
        }
        Ok(raw)
    }

    /// A scalar as text: people write passwords of digits without quotes.
    fn text(&self, key: &str, value: &Value) -> Result<Option<String>, ConfigError> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Value::Number(number) => Ok(Some(number.to_string())),
            Value::Bool(_) => Err(self.bad(key, "is read as true or false; put it in quotes")),
            Value::Array(_) | Value::Object(_) => Err(self.bad(key, "must be a text")),
        }
    }

    fn flag(&self, key: &str, value: &Value) -> Result<Option<bool>, ConfigError> {
        match value {
            Value::Null => Ok(None),
            Value::Bool(flag) => Ok(Some(*flag)),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" => Ok(Some(true)),
                "false" | "no" => Ok(Some(false)),
                _ => Err(self.bad(key, "must be true or false")),
            },
            _ => Err(self.bad(key, "must be true or false")),
        }
    }

    fn key(&self, key: &str) -> String {
        format!("clouds.{}.{key}", self.cloud)
    }

    fn bad(&self, key: &str, reason: &str) -> ConfigError {
        ConfigError::BadValue {
            place: place(self.file),
            key: self.key(key),
            reason: reason.to_owned(),
        }
    }

    fn unsupported(&self, key: &str) -> ConfigError {
        ConfigError::Unsupported {
            place: place(self.file),
            what: self.key(key),
            remedy: "log in by v3password, v3applicationcredential or v3token".to_owned(),
        }
    }

    fn unknown(&self, key: &str) -> String {
        format!("{}: {} is not known and has no effect", self.file, self.key(key))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use secrecy::ExposeSecret;

    use super::super::{ApplicationCredential, Auth, Domain, Interface, Project, User};
    use super::*;

    const PASSWORD: &str = r"
clouds:
  mine:
    auth_type: v3password
    auth:
      auth_url: https://keystone.example/v3
      username: csi
      password: 12345
      project_name: cluster
      user_domain_name: Default
      project_domain_id: default
    region_name: R1
    interface: internal
    cacert: /etc/ca.pem
    also_public_roots: true
    allow_http_endpoints: true
    verify: false
    regions: [a]
";

    #[test]
    fn a_password_login_is_read_whole() {
        let config = CloudConfig::from_clouds_yaml(PASSWORD, "mine").expect("good");
        let Auth::Password {
            user,
            password,
            project,
        } = &config.auth
        else {
            panic!("{:?}", config.auth)
        };
        assert_eq!(
            *user,
            User::Name {
                name: "csi".into(),
                domain: Domain::Name("Default".into())
            }
        );
        assert_eq!(password.expose_secret(), "12345");
        assert_eq!(
            *project,
            Project::Name {
                name: "cluster".into(),
                domain: Domain::Id("default".into())
            }
        );
        assert_eq!(
            (config.region.as_deref(), config.interface),
            (Some("R1"), Interface::Internal)
        );
        assert!(config.tls.insecure && config.tls.also_public_roots && config.allow_http_endpoints);
        assert_eq!(config.tls.ca_file.as_deref(), Some(std::path::Path::new("/etc/ca.pem")));
        assert_eq!(
            config.warnings,
            ["clouds.yaml: clouds.mine.regions is not known and has no effect"]
        );
    }

    #[test]
    fn an_application_credential_needs_no_project() {
        let text = "clouds: {c: {auth_type: v3applicationcredential, auth: {auth_url: 'http://k', application_credential_id: i, application_credential_secret: s}}}";
        let config = CloudConfig::from_clouds_yaml(text, "").expect("good");
        assert!(matches!(
            config.auth,
            Auth::ApplicationCredential { credential: ApplicationCredential::Id(id), .. } if id == "i"
        ));
    }

    #[rstest]
    #[case("clouds: {a: {}, b: {}}", "c", "no cloud \"c\"; it has: a, b")]
    #[case("clouds: {a: {}, b: {}}", "", "no cloud \"\"; it has: a, b")]
    #[case("cloud: {}", "c", "no mapping `clouds`")]
    #[case("clouds: [\n", "c", "not YAML")]
    #[case("clouds: {c: {auth_type: v3totp}}", "c", "clouds.c.auth_type is not supported")]
    #[case(
        "clouds: {c: {auth: {password: true}}}",
        "c",
        "clouds.c.auth.password is read as true or false"
    )]
    #[case(
        "clouds: {c: {auth: {password: p, username: u}}}",
        "c",
        "user_domain_name is missing"
    )]
    #[case("clouds: {c: {auth: {password: p, user_id: u}}}", "c", "project_name is missing")]
    #[case("clouds: {c: {auth: {}}}", "c", "application_credential_id")]
    #[case(
        "clouds: {c: {interface: outside}}",
        "c",
        "clouds.c.interface must be public, internal or admin"
    )]
    fn errors_name_the_key_and_the_remedy(#[case] text: &str, #[case] cloud: &str, #[case] expected: &str) {
        let error = CloudConfig::from_clouds_yaml(text, cloud).expect_err("bad").to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn no_error_or_debug_output_shows_a_secret() {
        let broken = "clouds:\n  c:\n    auth:\n      password: hunter2hunter2\n     x: [\n";
        let error = CloudConfig::from_clouds_yaml(broken, "c").expect_err("bad");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        let config = CloudConfig::from_clouds_yaml(PASSWORD, "mine").expect("good");
        assert!(!format!("{config:?}").contains("12345"));
    }
}
