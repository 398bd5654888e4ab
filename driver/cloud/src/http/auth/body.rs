// SPDX-License-Identifier: Apache-2.0
//! The body of a login request to Keystone.

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::config::{ApplicationCredential, Auth, Domain, Project, User};

fn domain_json(domain: &Domain) -> Value {
    match domain {
        Domain::Id(id) => json!({ "id": id }),
        Domain::Name(name) => json!({ "name": name }),
    }
}

fn user_json(user: &User) -> Value {
    match user {
        User::Id(id) => json!({ "id": id }),
        User::Name { name, domain } => json!({ "name": name, "domain": domain_json(domain) }),
    }
}

fn project_json(project: &Project) -> Value {
    match project {
        Project::Id(id) => json!({ "id": id }),
        Project::Name { name, domain } => json!({ "name": name, "domain": domain_json(domain) }),
    }
}

fn password_json(user: &User, password: &SecretString) -> Value {
    let mut user = user_json(user);
    user["password"] = json!(password.expose_secret());
    json!({ "methods": ["password"], "password": { "user": user } })
}

/// Builds the login request. It contains the secret and may be sent to Keystone only.
pub(super) fn login_body(auth: &Auth) -> Value {
    match auth {
        Auth::Password {
            user,
            password,
            project,
        } => {
            json!({ "auth": {
                "identity": password_json(user, password),
                "scope": { "project": project_json(project) },
            }})
        }
        Auth::Trust { user, password, trust } => {
            json!({ "auth": {
                "identity": password_json(user, password),
                "scope": { "OS-TRUST:trust": { "id": trust } },
            }})
        }
        Auth::Token { token, project } => {
            json!({ "auth": {
                "identity": { "methods": ["token"], "token": { "id": token.expose_secret() } },
                "scope": { "project": project_json(project) },
            }})
        }
        // Keystone derives the project from an application credential and rejects an additional scope.
        Auth::ApplicationCredential { credential, secret } => {
            let mut body = match credential {
                ApplicationCredential::Id(id) => json!({ "id": id }),
                ApplicationCredential::Name { name, user } => json!({ "name": name, "user": user_json(user) }),
            };
            body["secret"] = json!(secret.expose_secret());
            json!({ "auth": { "identity": {
                "methods": ["application_credential"], "application_credential": body,
            }}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_login_is_scoped_to_project() {
        let body = login_body(&Auth::Password {
            user: User::Name {
                name: "csi".into(),
                domain: Domain::Name("Default".into()),
            },
            password: "pw".to_owned().into(),
            project: Project::Id("p1".into()),
        });
        assert_eq!(
            body["auth"]["identity"]["password"]["user"]["domain"]["name"],
            "Default"
        );
        assert_eq!(body["auth"]["scope"]["project"]["id"], "p1");
    }

    #[test]
    fn trust_is_the_only_scope() {
        let body = login_body(&Auth::Trust {
            user: User::Id("trustee".into()),
            password: "pw".to_owned().into(),
            trust: "t1".into(),
        });
        assert_eq!(body["auth"]["identity"]["password"]["user"]["id"], "trustee");
        assert_eq!(body["auth"]["scope"], json!({ "OS-TRUST:trust": { "id": "t1" } }));
    }

    #[test]
    fn token_is_exchanged_for_project_token() {
        let body = login_body(&Auth::Token {
            token: "gAAAA".to_owned().into(),
            project: Project::Id("p1".into()),
        });
        assert_eq!(
            body["auth"]["identity"],
            json!({ "methods": ["token"], "token": { "id": "gAAAA" } })
        );
        assert_eq!(body["auth"]["scope"]["project"]["id"], "p1");
    }

    #[test]
    fn credential_by_name_has_user_without_scope() {
        let body = login_body(&Auth::ApplicationCredential {
            credential: ApplicationCredential::Name {
                name: "ac".into(),
                user: User::Id("u1".into()),
            },
            secret: "s".to_owned().into(),
        });
        assert_eq!(body["auth"]["identity"]["application_credential"]["user"]["id"], "u1");
        assert!(body["auth"].get("scope").is_none());
    }
}
