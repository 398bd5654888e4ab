// SPDX-License-Identifier: Apache-2.0
//! The settings of a login.

use secrecy::SecretString;

use super::super::keys::Setting;
use super::super::raw::{RawCloud, ReadContext};
use super::super::{ApplicationCredential, Auth, ConfigError, Domain, Project, User};

/// The program that the reader follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Original {
    /// cinder-csi-plugin, with gophercloud.
    GoDriver,
    /// openstacksdk, with keystoneauth.
    OpenStackSdk,
}

pub(super) const CREDENTIAL: [Setting; 3] = [
    Setting::CredentialId,
    Setting::CredentialName,
    Setting::CredentialSecret,
];

pub(super) const LOG_IN: &str =
    "log in with username and password, or with application-credential-id and application-credential-secret";

pub(super) const USER_DOMAIN: &str = "a user name is unique in its domain only; Default in most clouds";

pub(super) const PROJECT_DOMAIN: &str = "a project name is unique in its domain only; Default in most clouds";

pub(super) const PROJECT: &str = "volumes belong to a project: give its name or its id";

/// The id and the name of a domain, both of which may be set.
#[derive(Clone, Default)]
pub(super) struct DomainKeys {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
}

impl DomainKeys {
    pub(super) fn new(raw: &RawCloud, id: Setting, name: Setting) -> Self {
        Self {
            id: raw.text(id).map(str::to_owned),
            name: raw.text(name).map(str::to_owned),
        }
    }

    /// Fills the id and the name, each on its own, as both originals do.
    pub(super) fn or(self, other: &Self) -> Self {
        Self {
            id: self.id.or_else(|| other.id.clone()),
            name: self.name.or_else(|| other.name.clone()),
        }
    }

    /// The id takes precedence over the name in both originals.
    pub(super) fn choose(self) -> Option<Domain> {
        self.id.map(Domain::Id).or(self.name.map(Domain::Name))
    }
}

/// The domains of the user and of the project.
pub(super) struct Domains {
    pub(super) user: DomainKeys,
    pub(super) project: DomainKeys,
}

impl Domains {
    /// Reads the domains. `domain_id` and `domain_name` fill both, and `default_domain` is the id of each domain that is still unset.
    pub(super) fn new(raw: &RawCloud) -> Self {
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

    pub(super) fn user(&self, raw: &RawCloud, context: &ReadContext<'_>) -> Result<User, ConfigError> {
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

    pub(super) fn project(&self, raw: &RawCloud, context: &ReadContext<'_>) -> Result<Project, ConfigError> {
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

    pub(super) fn application_credential(
        &self,
        raw: &RawCloud,
        context: &ReadContext<'_>,
    ) -> Result<Auth, ConfigError> {
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

pub(super) fn secret(
    raw: &RawCloud,
    context: &ReadContext<'_>,
    setting: Setting,
    remedy: &str,
) -> Result<SecretString, ConfigError> {
    let secret = raw.secret(setting).cloned();
    secret.ok_or_else(|| context.missing(setting, remedy))
}

pub(super) fn has_any(raw: &RawCloud, settings: &[Setting]) -> bool {
    settings.iter().any(|setting| raw.has(*setting))
}

pub(super) fn present(raw: &RawCloud, context: &ReadContext<'_>, settings: &[Setting]) -> String {
    let present: Vec<Setting> = settings.iter().copied().filter(|setting| raw.has(*setting)).collect();
    context.names.list(&present)
}
