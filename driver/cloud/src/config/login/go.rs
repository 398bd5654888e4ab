// SPDX-License-Identifier: Apache-2.0
//! The login as gophercloud reads it: a token overrides a password, and a password overrides an application credential.

use secrecy::SecretString;

use super::{CREDENTIAL, Domains, LOG_IN, has_any, present, secret};
use crate::config::keys::Setting;
use crate::config::raw::{RawCloud, ReadContext};
use crate::config::{Auth, ConfigError, User};

const TRUST: &str =
    "a trust is used by its trustee: give the trustee's id and password, or the name and the password of a user";

pub(super) fn resolve(raw: &RawCloud, context: &ReadContext<'_>) -> Result<Auth, ConfigError> {
    let domains = Domains::new(raw);
    let is_token = raw.has(Setting::Token) || raw.text(Setting::AuthType).is_some_and(|kind| kind.contains("token"));
    let has_credential = has_any(raw, &CREDENTIAL);
    if raw.has(Setting::TrustId) {
        let others = [&CREDENTIAL[..], &[Setting::Token]].concat();
        refuse_second_login(raw, context, &[Setting::TrustId], &others)?;
        return trust(raw, context, &domains);
    }
    if is_token {
        refuse_second_login(raw, context, &[Setting::Token], &CREDENTIAL)?;
        return Ok(Auth::Token {
            token: secret(raw, context, Setting::Token, "the type of the login is token")?,
            project: domains.project(raw, context)?,
        });
    }
    if let Some(password) = raw.secret(Setting::Password) {
        refuse_second_login(raw, context, &[Setting::Password], &CREDENTIAL)?;
        return password_login(raw, context, &domains, password);
    }
    if has_credential {
        return domains.application_credential(raw, context);
    }
    Err(context.missing(Setting::Password, LOG_IN))
}

/// With a second login, cinder-csi-plugin omits the project from the first one.
fn refuse_second_login(
    raw: &RawCloud,
    context: &ReadContext<'_>,
    first: &[Setting],
    second: &[Setting],
) -> Result<(), ConfigError> {
    if !has_any(raw, second) {
        return Ok(());
    }
    let (first, second) = (present(raw, context, first), present(raw, context, second));
    Err(context.unsupported(
        format!("the login by {first} beside {second}"),
        format!("keep the keys of one login: remove {first}, or remove {second}"),
    ))
}

fn password_login(
    raw: &RawCloud,
    context: &ReadContext<'_>,
    domains: &Domains,
    password: &SecretString,
) -> Result<Auth, ConfigError> {
    refuse_two_users(raw, context, domains)?;
    Ok(Auth::Password {
        user: domains.user(raw, context)?,
        password: password.clone(),
        project: domains.project(raw, context)?,
    })
}

/// Rejects two identifiers of one user, as gophercloud does.
fn refuse_two_users(raw: &RawCloud, context: &ReadContext<'_>, domains: &Domains) -> Result<(), ConfigError> {
    let users = [Setting::Username, Setting::UserId];
    if users.iter().all(|setting| raw.has(*setting)) {
        let keys = context.names.list(&users);
        return Err(context.unsupported(
            format!("a user by name and by id ({keys})"),
            "keep one of them".to_owned(),
        ));
    }
    let keys = [
        Setting::UserDomainId,
        Setting::UserDomainName,
        Setting::DomainId,
        Setting::DomainName,
    ];
    if raw.has(Setting::UserId) && has_any(raw, &keys) {
        let keys = present(raw, context, &keys);
        let user = context.names.list(&[Setting::UserId]);
        return Err(context.unsupported(
            format!("the id of a user ({user}) beside a domain of the user ({keys})"),
            format!("an id needs no domain: remove {keys}"),
        ));
    }
    if raw.has(Setting::Username) && domains.user.id.is_some() && domains.user.name.is_some() {
        return Err(context.unsupported(
            format!(
                "a domain of the user by id and by name ({})",
                present(raw, context, &keys)
            ),
            "keep one of them".to_owned(),
        ));
    }
    Ok(())
}

fn trust(raw: &RawCloud, context: &ReadContext<'_>, domains: &Domains) -> Result<Auth, ConfigError> {
    let user = match raw.text(Setting::TrusteeId) {
        Some(_) if raw.has(Setting::Username) => {
            let keys = context.names.list(&[Setting::TrusteeId, Setting::Username]);
            return Err(context.unsupported(
                format!("a trustee by id and by name ({keys})"),
                "keep one of them".to_owned(),
            ));
        }
        Some(id) => User::Id(id.to_owned()),
        None => {
            refuse_two_users(raw, context, domains)?;
            domains.user(raw, context)?
        }
    };
    let password = raw.secret(Setting::TrusteePassword).or(raw.secret(Setting::Password));
    Ok(Auth::Trust {
        user,
        password: password
            .cloned()
            .ok_or_else(|| context.missing(Setting::TrusteePassword, TRUST))?,
        trust: raw.text(Setting::TrustId).unwrap_or_default().to_owned(),
    })
}
