// SPDX-License-Identifier: Apache-2.0
//! Keystone v3: tokens and the catalog.

mod catalogue;
mod tokens;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Fault, Reply, Request};
use crate::cloud::Cloud;
use crate::config::Identity;
use tokens::{Grant, Scope};
pub(crate) use tokens::{Token, Tokens};

/// A call of Keystone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    ListVersions,
    GetVersion,
    IssueToken,
    ValidateToken,
    RevokeToken,
    GetCredential,
    ListCredentials,
    Unknown,
}

impl Call {
    pub(crate) fn route(method: &str, path: &[&str]) -> Self {
        match (method, path) {
            ("GET", []) => Self::ListVersions,
            ("GET", ["v3"]) => Self::GetVersion,
            ("POST", ["v3", "auth", "tokens"]) => Self::IssueToken,
            ("GET" | "HEAD", ["v3", "auth", "tokens"]) => Self::ValidateToken,
            ("DELETE", ["v3", "auth", "tokens"]) => Self::RevokeToken,
            ("GET", ["v3", "users", _, "application_credentials", _]) => Self::GetCredential,
            ("GET", ["v3", "users", _, "application_credentials"]) => Self::ListCredentials,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ListVersions => "list_identity_versions",
            Self::GetVersion => "get_identity_version",
            Self::IssueToken => "issue_token",
            Self::ValidateToken => "validate_token",
            Self::RevokeToken => "revoke_token",
            Self::GetCredential => "get_application_credential",
            Self::ListCredentials => "list_application_credentials",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns the token of a request to Cinder or Nova, as their authentication middleware does.
pub(crate) fn authenticate(cloud: &Cloud, request: &Request) -> Result<Token, Reply> {
    let tokens = cloud.tokens();
    let token = request
        .header("x-auth-token")
        .and_then(|id| tokens.valid(id, cloud.sources.now()))
        .filter(|token| token.scoped);
    token.cloned().ok_or_else(|| unauthorized(cloud))
}

/// Returns the middleware's response to a missing, expired or revoked token.
pub(crate) fn unauthorized(cloud: &Cloud) -> Reply {
    Fault::new(401, crate::api::default_message(401))
        .render(crate::api::Style::Keystone)
        .header(
            "WWW-Authenticate",
            format!("Keystone uri=\"{}/identity\"", cloud.settings.base_url),
        )
}

/// Handles a call.
pub(crate) fn answer(cloud: &Cloud, call: Call, request: &Request) -> Result<Reply, Fault> {
    match call {
        Call::ListVersions => Ok(Reply::json(300, json!({"versions": {"values": [version(cloud)]}}))),
        Call::GetVersion => Ok(Reply::json(200, json!({"version": version(cloud)}))),
        Call::IssueToken => issue(cloud, request),
        Call::ValidateToken => {
            let subject = subject(cloud, request)?;
            let token = cloud
                .tokens()
                .valid(&subject, cloud.sources.now())
                .cloned()
                .ok_or_else(|| no_token(&subject))?;
            Ok(Reply::json(200, token_view(cloud, &token)).header("X-Subject-Token", subject))
        }
        Call::RevokeToken => {
            let subject = subject(cloud, request)?;
            if cloud.change_tokens(|tokens| tokens.revoke(&subject)) {
                Ok(Reply::empty(204))
            } else {
                Err(no_token(&subject))
            }
        }
        Call::GetCredential | Call::ListCredentials => credentials(cloud, call, request),
        Call::Unknown => Err(Fault::not_found(crate::api::default_message(404))),
    }
}

/// Returns application credentials to their owner; other users get an error.
fn credentials(cloud: &Cloud, call: Call, request: &Request) -> Result<Reply, Fault> {
    let identity = &cloud.settings.identity;
    let caller = request.header("x-auth-token").unwrap_or_default();
    let token = cloud
        .tokens()
        .valid(caller, cloud.sources.now())
        .cloned()
        .ok_or_else(denied)?;
    let path: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let after = |word: &str| path.iter().skip_while(|part| **part != word).nth(1).copied();
    if token.admin || after("users") != Some(identity.user_id.as_str()) {
        return Err(Fault::forbidden("identity:get_application_credential"));
    }
    // Keystone writes this time without a zone.
    let until = identity.application_credential_expires_at;
    let until = until.map(|until| until.strftime("%Y-%m-%dT%H:%M:%S.000000").to_string());
    let view = json!({
        "id": identity.application_credential_id,
        "name": identity.application_credential_name,
        "description": null,
        "project_id": identity.project_id,
        "unrestricted": false,
        "expires_at": until,
    });
    if call == Call::ListCredentials {
        return Ok(Reply::json(
            200,
            json!({"application_credentials": [view], "links": {"next": null}}),
        ));
    }
    match after("application_credentials") {
        Some(id) if id == identity.application_credential_id => {
            Ok(Reply::json(200, json!({"application_credential": view})))
        }
        id => Err(Fault::not_found(format!(
            "Could not find Application Credential: {}.",
            id.unwrap_or_default()
        ))),
    }
}

fn no_token(id: &str) -> Fault {
    Fault::not_found(format!("Could not find token: {id}."))
}

fn subject(cloud: &Cloud, request: &Request) -> Result<String, Fault> {
    let caller = request.header("x-auth-token").unwrap_or_default();
    if cloud.tokens().valid(caller, cloud.sources.now()).is_none() {
        return Err(denied());
    }
    let subject = request.header("x-subject-token");
    subject
        .map(str::to_owned)
        .ok_or_else(|| Fault::bad_request("The X-Subject-Token header is missing."))
}

fn denied() -> Fault {
    Fault::new(401, crate::api::default_message(401))
}

/// A reference by name or id, optionally in a domain.
#[derive(Debug, Default, Deserialize)]
struct Reference {
    id: Option<String>,
    name: Option<String>,
    domain: Option<Box<Reference>>,
    password: Option<String>,
}

impl Reference {
    fn matches(&self, id: &str, name: &str) -> bool {
        match (&self.id, &self.name) {
            (Some(given), _) => given == id,
            (None, Some(given)) => given == name,
            (None, None) => false,
        }
    }

    /// Whether the reference matches an object in the cloud's domain, by id alone or by name.
    fn is_in_domain(&self, identity: &Identity, id: &str, name: &str) -> bool {
        let domain = |domain: &Reference| domain.matches(&identity.domain_id, &identity.domain_name);
        self.matches(id, name) && (self.id.is_some() || self.domain.as_deref().is_some_and(domain))
    }
}

#[derive(Debug, Deserialize)]
struct Auth {
    identity: Methods,
    scope: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Methods {
    #[serde(rename = "methods")]
    names: Vec<String>,
    password: Option<Password>,
    token: Option<Reference>,
    application_credential: Option<Credential>,
}

#[derive(Debug, Deserialize)]
struct Password {
    user: Reference,
}

#[derive(Debug, Deserialize)]
struct Credential {
    id: Option<String>,
    name: Option<String>,
    secret: Option<String>,
    user: Option<Reference>,
}

fn issue(cloud: &Cloud, request: &Request) -> Result<Reply, Fault> {
    let identity = &cloud.settings.identity;
    let auth: Auth = request.object("auth")?;
    let requested_scope = auth.scope.as_ref();
    let (method, grant) = match auth.identity.names.as_slice() {
        [method] if method == "password" => {
            let user = auth.identity.password.ok_or_else(|| missing("password"))?.user;
            let member = user.is_in_domain(identity, &identity.user_id, &identity.username)
                && user.password.as_deref() == Some(&identity.password);
            let admin = user.is_in_domain(identity, &identity.admin_id, &identity.admin_name)
                && user.password.as_deref() == Some(&identity.admin_password);
            if !member && !admin {
                return Err(denied());
            }
            let scope = scope(identity, requested_scope, admin)?;
            let admin = admin && scope != Scope::Trust;
            let until = None;
            (method, Grant { scope, admin, until })
        }
        [method] if method == "token" => {
            let token = auth.identity.token.and_then(|token| token.id);
            let id = token.ok_or_else(|| missing("token"))?;
            let known = cloud
                .tokens()
                .valid(&id, cloud.sources.now())
                .cloned()
                .ok_or_else(denied)?;
            let scope = scope(identity, requested_scope, known.admin)?;
            let closed = known.trusted || known.method == "application_credential";
            if closed && scope != Scope::Nothing {
                return Err(Fault::forbidden("identity:rescope_token"));
            }
            let (admin, until) = (known.admin, Some(known.expires_at));
            (method, Grant { scope, admin, until })
        }
        [method] if method == "application_credential" => {
            let credential = auth.identity.application_credential;
            check_credential(identity, &credential.ok_or_else(|| missing(method))?)?;
            if requested_scope.is_some() {
                return Err(Fault::new(401, "Application credentials cannot request a scope."));
            }
            let until = identity.application_credential_expires_at;
            if until.is_some_and(|until| until <= cloud.sources.now()) {
                return Err(denied());
            }
            let (scope, admin) = (Scope::Project, false);
            (method, Grant { scope, admin, until })
        }
        _ => return Err(denied()),
    };
    let (id, token) = cloud.change_tokens(|tokens| tokens.issue(method, grant, &cloud.sources));
    Ok(Reply::json(201, token_view(cloud, &token)).header("X-Subject-Token", id))
}

fn missing(what: &str) -> Fault {
    Fault::bad_request(format!(
        "Expecting to find {what} in identity. The server could not comply with the request since it is either malformed or otherwise incorrect. The client is assumed to be in error."
    ))
}

fn check_credential(identity: &Identity, given: &Credential) -> Result<(), Fault> {
    let matching = match (&given.id, &given.name) {
        (Some(id), _) => *id == identity.application_credential_id,
        (None, Some(name)) => {
            let user = given.user.as_ref();
            *name == identity.application_credential_name
                && user.is_some_and(|user| user.is_in_domain(identity, &identity.user_id, &identity.username))
        }
        (None, None) => false,
    };
    if !matching {
        let name = given.id.as_deref().or(given.name.as_deref()).unwrap_or_default();
        return Err(Fault::not_found(format!(
            "Could not find Application Credential: {name}."
        )));
    }
    if given.secret.as_deref() == Some(&identity.application_credential_secret) {
        Ok(())
    } else {
        Err(denied())
    }
}

/// Determines the scope of a token. An unknown project is refused like a wrong password. Only the administrator's
/// account may use the trust; it then acts as the user.
fn scope(identity: &Identity, scope: Option<&Value>, admin: bool) -> Result<Scope, Fault> {
    let Some(scope) = scope.filter(|scope| *scope != "unscoped") else {
        return Ok(Scope::Nothing);
    };
    if let Some(trust) = scope.get("OS-TRUST:trust") {
        if trust["id"] != identity.trust_id.as_str() {
            let id = trust["id"].as_str().unwrap_or_default();
            return Err(Fault::not_found(format!("Could not find trust: {id}.")));
        }
        if !admin {
            return Err(Fault::new(403, "User is not a trustee."));
        }
        return Ok(Scope::Trust);
    }
    let project = scope.get("project").cloned().unwrap_or_default();
    let project: Reference = serde_json::from_value(project).unwrap_or_default();
    if project.is_in_domain(identity, &identity.project_id, &identity.project_name) {
        Ok(Scope::Project)
    } else {
        Err(denied())
    }
}

fn version(cloud: &Cloud) -> Value {
    json!({
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/identity/v3/", cloud.settings.base_url)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    })
}

fn token_view(cloud: &Cloud, token: &Token) -> Value {
    let identity = &cloud.settings.identity;
    let domain = json!({"id": identity.domain_id, "name": identity.domain_name});
    let (user_id, user_name) = if token.admin {
        (&identity.admin_id, &identity.admin_name)
    } else {
        (&identity.user_id, &identity.username)
    };
    let mut view = json!({
        "methods": [token.method],
        "user": {"domain": domain, "id": user_id, "name": user_name, "password_expires_at": null},
        "audit_ids": [cloud.sources.uuid().simple().to_string()],
        "expires_at": time(token.expires_at),
        "issued_at": time(token.issued_at),
    });
    if token.scoped {
        let mut roles = vec![role("member"), role("reader")];
        if token.admin {
            roles.push(role("admin"));
        }
        view["is_domain"] = json!(false);
        view["project"] = json!({"domain": domain, "id": identity.project_id, "name": identity.project_name});
        view["roles"] = json!(roles);
        view["catalog"] = catalogue::catalogue(cloud);
    }
    if token.trusted {
        view["OS-TRUST:trust"] = json!({
            "id": identity.trust_id,
            "impersonation": true,
            "trustor_user": {"id": identity.user_id},
            "trustee_user": {"id": identity.admin_id},
        });
    }
    if token.method == "application_credential" {
        view["application_credential"] = json!({
            "id": identity.application_credential_id,
            "name": identity.application_credential_name,
            "restricted": true,
        });
    }
    json!({"token": view})
}

fn role(name: &str) -> Value {
    json!({"id": format!("{name:0<32}"), "name": name})
}

/// Formats a time as Keystone does: microseconds and a Z.
fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
