// SPDX-License-Identifier: Apache-2.0
//! The settings of one cloud as they stand in a file, before they are understood: both formats lead here.

use std::path::PathBuf;

use secrecy::SecretString;

use super::{
    ApplicationCredential, Auth, BlockStorageOptions, ClientCertificate, CloudConfig, ConfigError, Domain, Interface,
    MetadataOptions, Place, Project, Proxies, Tls, TopologyOptions, User,
};

/// Which file format the names in an error are taken from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Names {
    CloudConf,
    CloudsYaml,
}

impl Names {
    /// A key of `cloud.conf` in this format's spelling.
    fn key(self, key: &str) -> String {
        match self {
            Self::CloudConf => key.to_owned(),
            Self::CloudsYaml => key.replace("tenant", "project").replace('-', "_"),
        }
    }
}

/// What is not about the connection.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) block_storage: BlockStorageOptions,
    pub(super) topology: TopologyOptions,
    pub(super) metadata: MetadataOptions,
}

#[derive(Clone, Default)]
pub(super) struct RawCloud {
    pub(super) auth_url: Option<String>,
    pub(super) username: Option<String>,
    pub(super) user_id: Option<String>,
    pub(super) password: Option<SecretString>,
    pub(super) project_id: Option<String>,
    pub(super) project_name: Option<String>,
    pub(super) domain_id: Option<String>,
    pub(super) domain_name: Option<String>,
    pub(super) project_domain_id: Option<String>,
    pub(super) project_domain_name: Option<String>,
    pub(super) user_domain_id: Option<String>,
    pub(super) user_domain_name: Option<String>,
    pub(super) credential_id: Option<String>,
    pub(super) credential_name: Option<String>,
    pub(super) credential_secret: Option<SecretString>,
    pub(super) trust_id: Option<String>,
    pub(super) trustee_id: Option<String>,
    pub(super) trustee_password: Option<SecretString>,
    pub(super) token: Option<SecretString>,
    pub(super) region: Option<String>,
    pub(super) interface: Option<Interface>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) ca_pem: Option<String>,
    pub(super) cert_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) insecure: Option<bool>,
    pub(super) also_public_roots: Option<bool>,
    pub(super) allow_http_endpoints: Option<bool>,
    pub(super) warnings: Vec<String>,
}

macro_rules! fill {
    ($into:ident, $from:ident, $($field:ident),+) => { $( $into.$field = $into.$field.or($from.$field); )+ };
}

impl RawCloud {
    /// Takes from `other` what is not set here.
    pub(super) fn or(mut self, mut other: Self) -> Self {
        // Ways to log in are not mixed: a credential here is not completed by a password there.
        if self.credential_secret.is_some()
            || self.password.is_some()
            || self.trustee_password.is_some()
            || self.token.is_some()
        {
            other.credential_id = None;
            other.credential_name = None;
            other.credential_secret = None;
            other.password = None;
            other.trust_id = None;
            other.trustee_id = None;
            other.trustee_password = None;
            other.token = None;
        }
        fill!(
            self,
            other,
            auth_url,
            username,
            user_id,
            password,
            project_id,
            project_name,
            domain_id,
            domain_name,
            project_domain_id,
            project_domain_name,
            user_domain_id,
            user_domain_name,
            credential_id,
            credential_name,
            credential_secret,
            trust_id,
            trustee_id,
            trustee_password,
            token,
            region,
            interface,
            ca_file,
            ca_pem,
            cert_file,
            key_file,
            insecure,
            also_public_roots,
            allow_http_endpoints
        );
        self.warnings.append(&mut other.warnings);
        self
    }

    /// Understands the settings. `file` is named in errors.
    pub(super) fn understand(self, file: &str, names: Names, options: Options) -> Result<CloudConfig, ConfigError> {
        let auth = self.auth(file, names)?;
        let auth_url = self
            .auth_url
            .ok_or_else(|| missing(file, names, "auth-url", "give the address of Keystone"))?;
        if !(auth_url.starts_with("https://") || auth_url.starts_with("http://")) {
            return Err(ConfigError::BadValue {
                place: Place {
                    file: file.to_owned(),
                    line: 0,
                },
                key: names.key("auth-url"),
                reason: "must begin with https:// or http://".to_owned(),
            });
        }
        if has_user(&auth_url) {
            return Err(ConfigError::BadValue {
                place: Place {
                    file: file.to_owned(),
                    line: 0,
                },
                key: names.key("auth-url"),
                reason: "must not hold a user or a password (what stands before an @ in front of the host): addresses are shown in logs; \
                         name them by keys of their own"
                    .to_owned(),
            });
        }
        let client = match (self.cert_file, self.key_file) {
            (Some(cert_file), Some(key_file)) => Some(ClientCertificate { cert_file, key_file }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(missing(
                    file,
                    names,
                    "key-file",
                    "it belongs to cert-file; they may be one file",
                ));
            }
            (None, Some(_)) => {
                return Err(missing(
                    file,
                    names,
                    "cert-file",
                    "it belongs to key-file; they may be one file",
                ));
            }
        };
        Ok(CloudConfig {
            auth_url,
            auth,
            region: self.region,
            interface: self.interface.unwrap_or_default(),
            tls: Tls {
                ca_file: self.ca_file,
                ca_pem: self.ca_pem,
                also_public_roots: self.also_public_roots.unwrap_or_default(),
                insecure: self.insecure.unwrap_or_default(),
                client,
                ..Tls::default()
            },
            allow_http_endpoints: self.allow_http_endpoints.unwrap_or_default(),
            block_storage: options.block_storage,
            topology: options.topology,
            metadata: options.metadata,
            proxies: Proxies::default(),
            warnings: self.warnings,
        })
    }

    fn auth(&self, file: &str, names: Names) -> Result<Auth, ConfigError> {
        if let Some(secret) = self.credential_secret.clone() {
            let credential = match (&self.credential_id, &self.credential_name) {
                (Some(id), _) => ApplicationCredential::Id(id.clone()),
                (None, Some(name)) => ApplicationCredential::Name {
                    name: name.clone(),
                    user: self.user(file, names)?,
                },
                (None, None) => {
                    let remedy =
                        "it belongs to application-credential-secret; or give application-credential-name and its user";
                    return Err(missing(file, names, "application-credential-id", remedy));
                }
            };
            return Ok(Auth::ApplicationCredential { credential, secret });
        }
        if self.credential_id.is_some() || self.credential_name.is_some() {
            let remedy = "an application credential needs its secret";
            return Err(missing(file, names, "application-credential-secret", remedy));
        }
        if let Some(trust) = self.trust_id.clone() {
            let password = self.trustee_password.clone().or_else(|| self.password.clone());
            let remedy =
                "a trust is used by its trustee: give trustee-id and trustee-password, or username and password";
            return Ok(Auth::Trust {
                user: match &self.trustee_id {
                    Some(id) => User::Id(id.clone()),
                    None => self.user(file, names)?,
                },
                password: password.ok_or_else(|| missing(file, names, "trustee-password", remedy))?,
                trust,
            });
        }
        if let (None, Some(token)) = (&self.password, self.token.clone()) {
            return Ok(Auth::Token {
                token,
                project: self.project(file, names)?,
            });
        }
        let Some(password) = self.password.clone() else {
            let remedy = "log in with username and password, or with application-credential-id and application-credential-secret";
            return Err(missing(file, names, "password", remedy));
        };
        Ok(Auth::Password {
            user: self.user(file, names)?,
            password,
            project: self.project(file, names)?,
        })
    }

    fn user(&self, file: &str, names: Names) -> Result<User, ConfigError> {
        if let Some(id) = &self.user_id {
            return Ok(User::Id(id.clone()));
        }
        let Some(name) = self.username.clone() else {
            return Err(missing(
                file,
                names,
                "username",
                "give it with user-domain-name, or give user-id",
            ));
        };
        let domain = domain([
            (&self.user_domain_id, &self.user_domain_name),
            (&self.domain_id, &self.domain_name),
        ]);
        let remedy = "a user name is unique in its domain only; Default in most clouds";
        Ok(User::Name {
            name,
            domain: domain.ok_or_else(|| missing(file, names, "user-domain-name", remedy))?,
        })
    }

    fn project(&self, file: &str, names: Names) -> Result<Project, ConfigError> {
        if let Some(id) = &self.project_id {
            return Ok(Project::Id(id.clone()));
        }
        let Some(name) = self.project_name.clone() else {
            return Err(missing(
                file,
                names,
                "tenant-name",
                "volumes belong to a project: give its name or its id",
            ));
        };
        let domain = domain([
            (&self.project_domain_id, &self.project_domain_name),
            (&self.domain_id, &self.domain_name),
            (&self.user_domain_id, &self.user_domain_name),
        ]);
        let remedy = "a project name is unique in its domain only; Default in most clouds";
        Ok(Project::Name {
            name,
            domain: domain.ok_or_else(|| missing(file, names, "tenant-domain-name", remedy))?,
        })
    }
}

fn domain<const N: usize>(candidates: [(&Option<String>, &Option<String>); N]) -> Option<Domain> {
    candidates
        .into_iter()
        .find_map(|(id, name)| id.clone().map(Domain::Id).or_else(|| name.clone().map(Domain::Name)))
}

/// Whether an address holds a user, or a user and a password.
fn has_user(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A backslash counts as a slash to whoever parses addresses of the web.
    let host = host.trim_start_matches(['/', '\\']);
    host.split(['/', '\\', '?', '#'])
        .next()
        .is_some_and(|host| host.contains('@'))
}

fn missing(file: &str, names: Names, key: &str, remedy: &str) -> ConfigError {
    ConfigError::Missing {
        file: file.to_owned(),
        key: names.key(key),
        remedy: names.key_text(remedy),
    }
}

impl Names {
    /// A sentence about keys of `cloud.conf` in this format's spelling.
    fn key_text(self, text: &str) -> String {
        text.split(' ')
            .map(|word| {
                if word.contains('-') {
                    self.key(word)
                } else {
                    word.to_owned()
                }
            })
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// The interface by any of its names.
pub(super) fn interface(text: &str) -> Option<Interface> {
    match text.trim_end_matches("URL") {
        "public" => Some(Interface::Public),
        "internal" => Some(Interface::Internal),
        "admin" => Some(Interface::Admin),
        _ => None,
    }
}
