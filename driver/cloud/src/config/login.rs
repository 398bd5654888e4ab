// SPDX-License-Identifier: Apache-2.0
//! Which login the settings of a cloud mean.

mod go;
mod sdk;

use secrecy::SecretString;

use super::keys::Setting;
use super::raw::{RawCloud, ReadContext};
use super::{ApplicationCredential, Auth, ConfigError, Domain, Project, User};

/// The program that the reader follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Original {
    /// cinder-csi-plugin, with gophercloud.
    GoDriver,
    /// openstacksdk, with keystoneauth.
    OpenStackSdk,
}

pub(super) fn understand(raw: &RawCloud, context: &ReadContext<'_>, original: Original) -> Result<Auth, ConfigError> {
    match original {
        Original::GoDriver => go::understand(raw, context),
        Original::OpenStackSdk => sdk::understand(raw, context),
    }
}

const CREDENTIAL: [Setting; 3] = [
    Setting::CredentialId,
    Setting::CredentialName,
    Setting::CredentialSecret,
];

const LOG_IN: &str =
    "log in with username and password, or with application-credential-id and application-credential-secret";
const USER_DOMAIN: &str = "a user name is unique in its domain only; Default in most clouds";
const PROJECT_DOMAIN: &str = "a project name is unique in its domain only; Default in most clouds";
const PROJECT: &str = "volumes belong to a project: give its name or its id";

/// The id and the name of a domain, both of which may be set.
#[derive(Clone, Default)]
struct DomainKeys {
    id: Option<String>,
    name: Option<String>,
}

impl DomainKeys {
    fn new(raw: &RawCloud, id: Setting, name: Setting) -> Self {
        Self {
            id: raw.text(id).map(str::to_owned),
            name: raw.text(name).map(str::to_owned),
        }
    }

    /// Fills the id and the name, each on its own, as both originals do.
    fn or(self, other: &Self) -> Self {
        Self {
            id: self.id.or_else(|| other.id.clone()),
            name: self.name.or_else(|| other.name.clone()),
        }
    }

    /// The id takes precedence over the name in both originals.
    fn choose(self) -> Option<Domain> {
        self.id.map(Domain::Id).or(self.name.map(Domain::Name))
    }
}

/// The domains of the user and of the project.
struct Domains {
    user: DomainKeys,
    project: DomainKeys,
}

impl Domains {
    /// Reads the domains. `domain_id` and `domain_name` fill both, and `default_domain` is the id of each domain that is still unset.
    fn new(raw: &RawCloud) -> Self {
        let both = DomainKeys::new(raw, Setting::DomainId, Setting::DomainName);
        let default = raw.text(Setting::DefaultDomain).map(str::to_owned);
        let filled = |own: DomainKeys| {
            let filled = own.or(&both);
            let is_open = filled.id.is_none() && filled.name.is_none();
            DomainKeys {
                id: filled.id.or_else(|| default.clone().filter(|_| is_open)),
                name: filled.name,
            }
        };
        Self {
            user: filled(DomainKeys::new(raw, Setting::UserDomainId, Setting::UserDomainName)),
            project: filled(DomainKeys::new(
                raw,
                Setting::ProjectDomainId,
                Setting::ProjectDomainName,
            )),
        }
    }

    fn user(&self, raw: &RawCloud, context: &ReadContext<'_>) -> Result<User, ConfigError> {
        if let Some(id) = raw.text(Setting::UserId) {
            return Ok(User::Id(id.to_owned()));
        }
        let name = raw.text(Setting::Username).ok_or_else(|| {
            context.missing(
                Setting::Username,
                "give it with the domain of the user, or give the id of the user",
            )
        })?;
        let domain = self.user.clone().choose();
        Ok(User::Name {
            name: name.to_owned(),
            domain: domain.ok_or_else(|| context.missing(Setting::UserDomainName, USER_DOMAIN))?,
        })
    }

    fn project(&self, raw: &RawCloud, context: &ReadContext<'_>) -> Result<Project, ConfigError> {
        if let Some(id) = raw.text(Setting::ProjectId) {
            return Ok(Project::Id(id.to_owned()));
        }
        let name = raw
            .text(Setting::ProjectName)
            .ok_or_else(|| context.missing(Setting::ProjectName, PROJECT))?;
        let domain = self.project.clone().choose();
        Ok(Project::Name {
            name: name.to_owned(),
            domain: domain.ok_or_else(|| context.missing(Setting::ProjectDomainName, PROJECT_DOMAIN))?,
        })
    }

    fn application_credential(&self, raw: &RawCloud, context: &ReadContext<'_>) -> Result<Auth, ConfigError> {
        let credential = match (raw.text(Setting::CredentialId), raw.text(Setting::CredentialName)) {
            (Some(id), _) => ApplicationCredential::Id(id.to_owned()),
            (None, Some(name)) => ApplicationCredential::Name {
                name: name.to_owned(),
                user: self.user(raw, context)?,
            },
            (None, None) => {
                let remedy = "it belongs to the secret of the application credential; or give its name and its user";
                return Err(context.missing(Setting::CredentialId, remedy));
            }
        };
        let secret = secret(
            raw,
            context,
            Setting::CredentialSecret,
            "an application credential needs its secret",
        )?;
        Ok(Auth::ApplicationCredential { credential, secret })
    }
}

fn secret(
    raw: &RawCloud,
    context: &ReadContext<'_>,
    setting: Setting,
    remedy: &str,
) -> Result<SecretString, ConfigError> {
    let secret = raw.secret(setting).cloned();
    secret.ok_or_else(|| context.missing(setting, remedy))
}

fn has_any(raw: &RawCloud, settings: &[Setting]) -> bool {
    settings.iter().any(|setting| raw.has(*setting))
}

fn present(raw: &RawCloud, context: &ReadContext<'_>, settings: &[Setting]) -> String {
    let present: Vec<Setting> = settings.iter().copied().filter(|setting| raw.has(*setting)).collect();
    context.names.list(&present)
}
