// SPDX-License-Identifier: Apache-2.0
//! The login as openstacksdk reads it: `auth_type` selects it.

use super::{CREDENTIAL, DomainKeys, Domains, LOG_IN, has_any, present, secret};
use crate::config::keys::Setting;
use crate::config::raw::{RawCloud, ReadContext};
use crate::config::{Auth, ConfigError};

const SECURE: &str = "if a secure.yaml has it, write it into clouds.yaml";

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoginMethod {
    Password,
    Token,
    ApplicationCredential,
}

impl LoginMethod {
    fn of_type(auth_type: &str) -> Option<Self> {
        match auth_type {
            "password" | "v3password" => Some(Self::Password),
            "token" | "v3token" => Some(Self::Token),
            "v3applicationcredential" => Some(Self::ApplicationCredential),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Token => "token",
            Self::ApplicationCredential => "v3applicationcredential",
        }
    }

    fn keys(self) -> &'static [Setting] {
        match self {
            Self::Password => &[Setting::Username, Setting::UserId, Setting::Password],
            Self::Token => &[Setting::Token],
            Self::ApplicationCredential => &CREDENTIAL,
        }
    }

    /// Whether all keys of the login are present.
    fn is_complete(self, raw: &RawCloud) -> bool {
        match self {
            Self::Password => raw.has(Setting::Password) && has_any(raw, &[Setting::Username, Setting::UserId]),
            Self::Token => raw.has(Setting::Token),
            Self::ApplicationCredential => {
                raw.has(Setting::CredentialSecret) && has_any(raw, &[Setting::CredentialId, Setting::CredentialName])
            }
        }
    }
}

pub(super) fn resolve(raw: &RawCloud, context: &ReadContext<'_>) -> Result<Auth, ConfigError> {
    let method = method(raw, context)?;
    let domains = domains(raw, context)?;
    if raw.has(Setting::TrustId) {
        return trust(raw, context, method, &domains);
    }
    match method {
        LoginMethod::Password => {
            let password = raw.secret(Setting::Password).cloned();
            let remedy = if raw.has(Setting::AuthType) {
                format!("the type of the login is password; {SECURE}")
            } else {
                format!("{}; {SECURE}", LOG_IN.replace('-', "_"))
            };
            Ok(Auth::Password {
                password: password.ok_or_else(|| context.missing(Setting::Password, &remedy))?,
                user: domains.user(raw, context)?,
                project: domains.project(raw, context)?,
            })
        }
        LoginMethod::Token => Ok(Auth::Token {
            token: secret(
                raw,
                context,
                Setting::Token,
                &format!("the type of the login is token; {SECURE}"),
            )?,
            project: domains.project(raw, context)?,
        }),
        LoginMethod::ApplicationCredential => domains.application_credential(raw, context),
    }
}

/// Determines the login from `auth_type`. Without it, openstacksdk and gophercloud choose differently, so only one
/// may be present.
fn method(raw: &RawCloud, context: &ReadContext<'_>) -> Result<LoginMethod, ConfigError> {
    if let Some(auth_type) = raw.text(Setting::AuthType) {
        let method = LoginMethod::of_type(auth_type);
        return method.ok_or_else(|| context.missing(Setting::AuthType, "name a type of login"));
    }
    let all = [
        LoginMethod::Password,
        LoginMethod::Token,
        LoginMethod::ApplicationCredential,
    ];
    let complete: Vec<LoginMethod> = all.into_iter().filter(|method| method.is_complete(raw)).collect();
    match complete[..] {
        // Gophercloud omits the project of such a token, and keystoneauth rejects it.
        [LoginMethod::Token] if has_any(raw, &CREDENTIAL) => {
            let (token, credential) = (
                present(raw, context, &[Setting::Token]),
                present(raw, context, &CREDENTIAL),
            );
            Err(context.unsupported(
                format!("{token} next to {credential} without auth_type"),
                "keep the keys of one login".to_owned(),
            ))
        }
        [method] => Ok(method),
        [] if has_any(raw, &CREDENTIAL) && !raw.has(Setting::Password) => Ok(LoginMethod::ApplicationCredential),
        [] => Ok(LoginMethod::Password),
        _ => {
            let keys: Vec<String> = complete
                .iter()
                .map(|method| present(raw, context, method.keys()))
                .collect();
            let types: Vec<&str> = complete.iter().map(|method| method.name()).collect();
            Err(context.unsupported(
                format!("more than one login without auth_type ({})", keys.join("; ")),
                format!("set auth_type to {}, or keep the keys of one login", types.join(" or ")),
            ))
        }
    }
}

/// keystoneauth's generic logins fill the domains once more; its logins of version 3 ignore these keys.
fn domains(raw: &RawCloud, context: &ReadContext<'_>) -> Result<Domains, ConfigError> {
    let mut domains = Domains::new(raw);
    let keys = [Setting::DefaultDomainId, Setting::DefaultDomainName];
    if !has_any(raw, &keys) {
        return Ok(domains);
    }
    if raw.text(Setting::AuthType).is_some_and(|kind| kind.starts_with("v3")) {
        let (what, kind) = (present(raw, context, &keys), context.names.key(Setting::AuthType));
        return Err(context.unsupported(
            format!("{what} with a {kind} of version 3"),
            "write user_domain_id and project_domain_id instead".to_owned(),
        ));
    }
    if raw.has(Setting::DefaultDomain) {
        let all = [
            Setting::DefaultDomain,
            Setting::DefaultDomainId,
            Setting::DefaultDomainName,
        ];
        let what = present(raw, context, &all);
        return Err(context.unsupported(
            format!("more than one default domain ({what})"),
            "keep one of them".to_owned(),
        ));
    }
    let default = DomainKeys::new(raw, Setting::DefaultDomainId, Setting::DefaultDomainName);
    domains.user = domains.user.or(&default);
    domains.project = domains.project.or(&default);
    Ok(domains)
}

fn trust(
    raw: &RawCloud,
    context: &ReadContext<'_>,
    method: LoginMethod,
    domains: &Domains,
) -> Result<Auth, ConfigError> {
    let project = [Setting::ProjectId, Setting::ProjectName];
    let key = context.names.key(Setting::TrustId);
    if method != LoginMethod::Password {
        return Err(context.unsupported(
            format!("{key} with a login by {}", method.name()),
            "use a trust with the user and the password of its trustee".to_owned(),
        ));
    }
    if has_any(raw, &project) {
        let project = present(raw, context, &project);
        return Err(context.unsupported(
            format!("{key} beside {project}"),
            format!("a trust has its own project: remove {project}, or remove {key}"),
        ));
    }
    // A user with an id needs no domain. Gophercloud uses the domain for the scope, in place of the trust.
    let domain = [Setting::DomainId, Setting::DomainName];
    if raw.has(Setting::UserId) && has_any(raw, &domain) {
        let domain = present(raw, context, &domain);
        return Err(context.unsupported(
            format!("{key} next to {domain}"),
            format!("a trust has its own scope: remove {domain}, or remove {key}"),
        ));
    }
    Ok(Auth::Trust {
        user: domains.user(raw, context)?,
        password: secret(
            raw,
            context,
            Setting::Password,
            "a trust is used with the password of its trustee",
        )?,
        trust: raw.text(Setting::TrustId).unwrap_or_default().to_owned(),
    })
}
