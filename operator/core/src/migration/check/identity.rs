// SPDX-License-Identifier: Apache-2.0
//! The project and the user of a login, compared without its secrets.

use cinder_cloud::config::{ApplicationCredential, Auth, ConfigError, Domain, Project, User};
use csi_sources::UntrustedText;

/// Maximum number of characters of a name.
const LONGEST_NAME: usize = 200;

const BY_ID_AND_NAME: &str = "one side has its id, and the other its name";
const DOMAIN_BY_ID_AND_NAME: &str = "one side has the id of its domain, and the other the name";
const BY_CASE: &str = "the names differ in case only, which some databases of Keystone do not distinguish";

/// A login without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    Password { user: User, project: Project },
    Token { project: Project },
    Credential(ApplicationCredential),
    Trust { user: User, trust: String },
}

/// The login of the other installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OldLogin {
    Known(Identity),
    /// This driver refuses it.
    Refused(RefusedPart),
}

/// A part of a configuration that cinder-csi-plugin may accept and this driver refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedPart {
    /// The problem with its key, without values.
    pub(super) problem: String,
    pub(super) remedy: String,
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sameness {
    Same,
    /// The texts of both sides.
    Different(String, String),
    /// The reason.
    Unknown(String),
}

/// The project of a login.
enum LoginScope<'a> {
    Project(&'a Project),
    /// The project belongs to the application credential.
    Credential(&'a ApplicationCredential),
    /// The project belongs to the trust.
    Trust(&'a str),
}

/// A user or a project.
enum KeystoneObject<'a> {
    Id(&'a str),
    Name(&'a str, &'a Domain),
}

impl From<&ConfigError> for RefusedPart {
    fn from(error: &ConfigError) -> Self {
        let (problem, remedy) = error.problem_and_remedy();
        let mut remedy = remedy.unwrap_or("correct the value").to_owned();
        if let Some(first) = remedy.get(..1).map(str::to_uppercase) {
            remedy.replace_range(..1, &first);
        }
        Self { problem, remedy }
    }
}

impl Identity {
    pub(super) fn new(auth: &Auth) -> Self {
        match auth {
            Auth::Password { user, project, .. } => Self::Password {
                user: user.clone(),
                project: project.clone(),
            },
            Auth::Token { project, .. } => Self::Token {
                project: project.clone(),
            },
            Auth::ApplicationCredential { credential, .. } => Self::Credential(credential.clone()),
            Auth::Trust { user, trust, .. } => Self::Trust {
                user: user.clone(),
                trust: trust.clone(),
            },
        }
    }

    /// Returns the type of the login.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Password { .. } => "a password",
            Self::Trust { .. } => "a trust",
            Self::Token { .. } => "a token",
            Self::Credential(_) => "an application credential",
        }
    }

    fn scope(&self) -> LoginScope<'_> {
        match self {
            Self::Password { project, .. } | Self::Token { project } => LoginScope::Project(project),
            Self::Credential(credential) => LoginScope::Credential(credential),
            Self::Trust { trust, .. } => LoginScope::Trust(trust),
        }
    }

    /// Returns the user. An application credential with an id, and a token, do not name it.
    fn user(&self) -> Option<&User> {
        match self {
            Self::Password { user, .. }
            | Self::Trust { user, .. }
            | Self::Credential(ApplicationCredential::Name { user, .. }) => Some(user),
            Self::Credential(ApplicationCredential::Id(_)) | Self::Token { .. } => None,
        }
    }

    /// Compares the projects.
    pub(super) fn compare_projects(&self, other: &Self) -> Sameness {
        let (is_same, why) = match (self.scope(), other.scope()) {
            (LoginScope::Project(one), LoginScope::Project(other)) => return compare(&project(one), &project(other)),
            (LoginScope::Credential(one), LoginScope::Credential(other)) => {
                let (left, right) = (credential(one), credential(other));
                let why = format!("the application credentials {left} and {right} do not name their projects");
                (one == other, why)
            }
            (LoginScope::Trust(one), LoginScope::Trust(other)) => {
                let (left, right) = (quoted(one), quoted(other));
                (
                    one == other,
                    format!("the trusts {left} and {right} do not name their projects"),
                )
            }
            _ => (
                false,
                format!("{} or {} does not name its project", self.kind(), other.kind()),
            ),
        };
        if is_same {
            Sameness::Same
        } else {
            Sameness::Unknown(why)
        }
    }

    /// Compares the users, if both logins name one.
    pub(super) fn compare_users(&self, other: &Self) -> Option<Sameness> {
        let (one, other) = (self.user()?, other.user()?);
        Some(compare(&user(one), &user(other)))
    }
}

fn project(project: &Project) -> KeystoneObject<'_> {
    match project {
        Project::Id(id) => KeystoneObject::Id(id),
        Project::Name { name, domain } => KeystoneObject::Name(name, domain),
    }
}

fn user(user: &User) -> KeystoneObject<'_> {
    match user {
        User::Id(id) => KeystoneObject::Id(id),
        User::Name { name, domain } => KeystoneObject::Name(name, domain),
    }
}

fn compare(one: &KeystoneObject<'_>, other: &KeystoneObject<'_>) -> Sameness {
    let is_same = match (one, other) {
        (KeystoneObject::Id(one), KeystoneObject::Id(other)) => one == other,
        (KeystoneObject::Name(one, domain), KeystoneObject::Name(other, other_domain)) if one == other => {
            match (domain, other_domain) {
                (Domain::Name(one), Domain::Name(other)) if one != other && one.eq_ignore_ascii_case(other) => {
                    return Sameness::Unknown(BY_CASE.to_owned());
                }
                (Domain::Id(one), Domain::Id(other)) | (Domain::Name(one), Domain::Name(other)) => one == other,
                _ => return Sameness::Unknown(DOMAIN_BY_ID_AND_NAME.to_owned()),
            }
        }
        (KeystoneObject::Name(one, _), KeystoneObject::Name(other, _)) if one.eq_ignore_ascii_case(other) => {
            return Sameness::Unknown(BY_CASE.to_owned());
        }
        (KeystoneObject::Name(..), KeystoneObject::Name(..)) => false,
        _ => return Sameness::Unknown(BY_ID_AND_NAME.to_owned()),
    };
    if is_same {
        Sameness::Same
    } else {
        Sameness::Different(one.shown(), other.shown())
    }
}

impl KeystoneObject<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Id(id) => format!("with the id {}", quoted(id)),
            Self::Name(name, Domain::Id(domain)) => {
                format!("{} of the domain with the id {}", quoted(name), quoted(domain))
            }
            Self::Name(name, Domain::Name(domain)) => format!("{} of the domain {}", quoted(name), quoted(domain)),
        }
    }
}

fn credential(credential: &ApplicationCredential) -> String {
    match credential {
        ApplicationCredential::Id(id) => format!("with the id {}", quoted(id)),
        ApplicationCredential::Name { name, user: owner } => {
            format!("{} of the user {}", quoted(name), user(owner).shown())
        }
    }
}

fn quoted(text: &str) -> String {
    UntrustedText::with_limit(text, LONGEST_NAME).quoted()
}
