// SPDX-License-Identifier: Apache-2.0
//! The meaning of a configuration, in a form that is comparable between the driver and the originals.

use cinder_cloud::config::{ServiceAccess, TopologyOptions};
use cinder_cloud::{Auth, CloudConfig, config};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

/// Lines of `NAME: VALUE`. `None` means that the original does not report the value.
#[derive(Debug, Default)]
pub(crate) struct Meaning {
    login: Option<String>,
    connection: Vec<(&'static str, String)>,
    options: Vec<(&'static str, String)>,
}

impl Meaning {
    pub(crate) fn new(config: &CloudConfig) -> Self {
        assert_eq!(config.topology, TopologyOptions::default());
        let access = |access: &ServiceAccess| {
            let region = access.region.as_deref().or(config.region.as_deref());
            let interface = access.interface.unwrap_or(config.interface);
            service(region, Some(interface.as_str()), access.endpoint.as_deref())
        };
        let tls = &config.tls;
        let ca = tls.ca_file.as_ref().map(|path| path.display().to_string());
        let client = tls.client.as_ref().map(|client| {
            let (cert, key) = (client.cert_file.display(), client.key_file.display());
            format!("{cert} {key}")
        });
        let options = &config.block_storage;
        Self {
            login: Some(login(&config.auth_url, &auth_body(&config.auth))),
            connection: vec![
                ("block storage", access(&config.services.block_storage)),
                ("compute", access(&config.services.compute)),
                ("tls", verification(tls.insecure, ca.as_deref(), tls.ca_pem.as_deref())),
                ("client", client.unwrap_or_default()),
            ],
            options: vec![
                // A limit equal to the default of cinder-csi-plugin counts as unset.
                ("limit", options.node_volume_attach_limit.unwrap_or(256).to_string()),
                ("rescan", options.rescan_on_resize.to_string()),
                ("zone", options.ignore_volume_az.to_string()),
                ("microversion", options.ignore_volume_microversion.to_string()),
                (
                    "timeout",
                    config
                        .metadata
                        .request_timeout
                        .map_or(0, |timeout| timeout.as_millis())
                        .to_string(),
                ),
                ("order", config.metadata.search_order.join(",")),
            ],
        }
    }

    /// Removes settings that the original does not report.
    pub(crate) fn forget_what_is_unknown(&mut self, theirs: &Self) {
        if theirs.login.is_none() {
            self.login = None;
        }
    }

    pub(crate) fn connection(&self) -> String {
        let login = self.login.iter().map(|login| format!("login: {login}"));
        let rest = self.connection.iter().map(|(name, value)| format!("{name}: {value}"));
        login.chain(rest).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn everything(&self) -> String {
        let options = self.options.iter().map(|(name, value)| format!("{name}: {value}"));
        let all: Vec<String> = std::iter::once(self.connection()).chain(options).collect();
        all.join("; ")
    }
}

/// Returns the meaning of a file for openstacksdk, with the login of gophercloud if openstacksdk has none. `None` if
/// neither can use the file.
pub(crate) fn of_sdk(sdk: &Value, go: Option<&Value>) -> Option<Meaning> {
    if sdk.get("error").is_some() {
        return None;
    }
    let source = if sdk.get("login_error").is_some() {
        go
    } else {
        Some(sdk)
    };
    let of_service = |name: &str| {
        let access = &sdk["services"][name];
        let text = |key: &str| access[key].as_str().filter(|text| !text.is_empty());
        service(text("region"), text("interface"), text("endpoint"))
    };
    let (insecure, ca) = match &sdk["verify"] {
        Value::Bool(verify) => (!verify, None),
        Value::String(path) => (false, Some(path.as_str())),
        _ => (false, None),
    };
    let client = match &sdk["cert"] {
        Value::String(file) => format!("{file} {file}"),
        Value::Array(files) => files.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    };
    Some(Meaning {
        login: source.and_then(|source| Some(login(source["auth_url"].as_str()?, &source["auth"]))),
        connection: vec![
            ("block storage", of_service("block_storage")),
            ("compute", of_service("compute")),
            ("tls", verification(insecure, ca, None)),
            ("client", client),
        ],
        options: Vec::new(),
    })
}

/// Returns the meaning of a file for cinder-csi-plugin.
pub(crate) fn of_go_driver(go: &Value) -> Meaning {
    let text = |key: &str| go[key].as_str().filter(|text| !text.is_empty());
    let one = service(text("region"), text("interface"), None);
    let client = match (text("cert"), text("key")) {
        (Some(cert), Some(key)) => format!("{cert} {key}"),
        _ => String::new(),
    };
    let options = &go["options"];
    let order = options["search_order"].as_str().filter(|order| !order.is_empty());
    let order: Vec<&str> = order
        .unwrap_or("configDrive,metadataService")
        .split(',')
        .map(str::trim)
        .collect();
    Meaning {
        login: Some(login(text("auth_url").unwrap_or_default(), &go["auth"])),
        connection: vec![
            ("block storage", one.clone()),
            ("compute", one),
            (
                "tls",
                verification(go["insecure"] == json!(true), text("ca_file"), text("ca_pem")),
            ),
            ("client", client),
        ],
        options: vec![
            ("limit", options["limit"].to_string()),
            ("rescan", options["rescan"].to_string()),
            ("zone", options["ignore_zone"].to_string()),
            ("microversion", options["ignore_microversion"].to_string()),
            ("timeout", options["timeout_ms"].to_string()),
            ("order", order.join(",")),
        ],
    }
}

fn service(region: Option<&str>, interface: Option<&str>, endpoint: Option<&str>) -> String {
    let interface = interface.unwrap_or("public").trim_end_matches(['U', 'R', 'L']);
    format!("{} {interface} {}", region.unwrap_or("-"), endpoint.unwrap_or("-"))
}

fn verification(insecure: bool, ca: Option<&str>, pem: Option<&str>) -> String {
    match (insecure, ca, pem) {
        (true, _, _) => "any certificate".to_owned(),
        (false, Some(path), _) => format!("authorities of {path}"),
        (false, None, Some(pem)) => format!("authorities {pem:?}"),
        (false, None, None) => "public authorities".to_owned(),
    }
}

/// Returns URL and body of the token request. Keystone ignores the scope of an application credential.
fn login(url: &str, auth: &Value) -> String {
    let url = url.trim_end_matches('/').trim_end_matches("/v3");
    let mut auth = auth.clone();
    let methods = auth["identity"]["methods"].clone();
    if methods == json!(["application_credential"])
        && let Some(auth) = auth.as_object_mut()
    {
        auth.remove("scope");
    }
    format!("{url} {}", sorted(&auth))
}

/// Serializes JSON with sorted keys.
fn sorted(value: &Value) -> String {
    let Value::Object(map) = value else {
        return value.to_string();
    };
    let mut entries: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}:{}", sorted(value)))
        .collect();
    entries.sort();
    format!("{{{}}}", entries.join(","))
}

fn auth_body(auth: &Auth) -> Value {
    let domain = |domain: &config::Domain| match domain {
        config::Domain::Id(id) => json!({"id": id}),
        config::Domain::Name(name) => json!({"name": name}),
    };
    let user = |user: &config::User| match user {
        config::User::Id(id) => json!({"id": id}),
        config::User::Name { name, domain: of } => json!({"name": name, "domain": domain(of)}),
    };
    let project = |project: &config::Project| match project {
        config::Project::Id(id) => json!({"project": {"id": id}}),
        config::Project::Name { name, domain: of } => json!({"project": {"name": name, "domain": domain(of)}}),
    };
    let with_password = |who: &config::User, password: &str, scope: Value| {
        let mut user = user(who);
        user["password"] = json!(password);
        json!({"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope})
    };
    match auth {
        Auth::Password {
            user,
            password,
            project: to,
        } => with_password(user, password.expose_secret(), project(to)),
        Auth::Trust { user, password, trust } => {
            with_password(user, password.expose_secret(), json!({"OS-TRUST:trust": {"id": trust}}))
        }
        Auth::Token { token, project: to } => json!({
            "identity": {"methods": ["token"], "token": {"id": token.expose_secret()}},
            "scope": project(to),
        }),
        Auth::ApplicationCredential { credential, secret } => {
            let mut body = match credential {
                config::ApplicationCredential::Id(id) => json!({"id": id}),
                config::ApplicationCredential::Name { name, user: who } => json!({"name": name, "user": user(who)}),
            };
            body["secret"] = json!(secret.expose_secret());
            json!({"identity": {"methods": ["application_credential"], "application_credential": body}})
        }
    }
}
