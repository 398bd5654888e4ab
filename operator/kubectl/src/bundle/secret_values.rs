// SPDX-License-Identifier: Apache-2.0
//! Values of Secrets that no log and no message of the bundle may contain.
//!
//! The logs of this operator and driver contain no secrets by construction. The search protects against other versions,
//! and against the Kubernetes client, whose debug log contains whole bodies. It also covers messages, because the
//! status of a container repeats the last lines of its log.

use std::collections::BTreeSet;

use cinder_csi_operator::kubernetes::SecretData;
use k8s_openapi::ByteString;
use serde_json::Value;

/// Replaces a line.
const LEFT_OUT: &str = "(left out: a line with a value of a Secret)\n";

/// The module of the Kubernetes client that logs bodies.
const BODIES: &str = "kube_client::client";

/// Minimum length of a value in the search. A shorter value would match other text.
const SHORTEST: usize = 6;

/// Number of encoded characters that identify a truncated value.
const PREFIX: usize = 32;

/// Quotes around a value.
const QUOTES: [char; 2] = ['"', '\''];

/// Parts of the names of secret settings.
const SECRET_WORDS: [&str; 4] = ["password", "secret", "token", "key"];

/// Fields of objects with text of programs.
const MESSAGES: [&str; 2] = ["message", "note"];

/// Characters between the settings of one line, in JSON and in YAML.
const SEPARATORS: [char; 4] = ['\n', ',', '{', '}'];

/// Values that are removed from logs and messages.
#[derive(Default)]
pub(super) struct SecretValues(BTreeSet<String>);

impl SecretValues {
    /// Adds the values of a Secret, and the secret settings in them.
    pub(super) fn add(&mut self, secret: &SecretData) {
        for key in secret.keys() {
            let Ok(Some(bytes)) = secret.get(key) else { continue };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Ok(Value::String(mut encoded)) = serde_json::to_value(ByteString(bytes)) {
                encoded.truncate(PREFIX);
                self.insert(encoded.trim_end_matches('='));
            }
            // The Secret of a StorageClass has a key for each setting.
            if is_secret_name(key) {
                self.insert(text.trim());
            }
            // A value may contain separators, too.
            let pieces = text.split(SEPARATORS).filter(|piece| piece.contains(['=', ':']));
            let settings = text.lines().chain(pieces);
            settings.filter_map(secret_setting).for_each(|value| {
                self.insert(value);
                self.insert(without_comment(value));
            });
        }
    }

    fn insert(&mut self, value: &str) {
        if value.len() >= SHORTEST {
            self.0.insert(value.to_owned());
        }
    }

    /// Removes lines that contain a value or a body from the messages in an object.
    pub(super) fn remove_from_messages(&self, object: &mut Value) {
        match object {
            Value::Array(items) => items.iter_mut().for_each(|item| self.remove_from_messages(item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::String(text) if MESSAGES.contains(&name.as_str()) => *text = self.remove_lines(text),
                        value => self.remove_from_messages(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// The text without lines that contain a value or a body.
    pub(super) fn remove_lines(&self, text: &str) -> String {
        let has_secret = |line: &str| line.contains(BODIES) || self.0.iter().any(|value| line.contains(value.as_str()));
        let lines = text.split_inclusive('\n');
        lines
            .map(|line| if has_secret(line) { LEFT_OUT } else { line })
            .collect()
    }
}

/// The value without a comment behind it, and without its quotes.
fn without_comment(value: &str) -> &str {
    let end = [" #", " ;"].iter().filter_map(|mark| value.find(*mark)).min();
    let value = end.and_then(|end| value.get(..end)).unwrap_or(value);
    value.trim().trim_matches(QUOTES)
}

/// The value in a line of cloud.conf, clouds.yaml or a key in PEM, if it is secret.
fn secret_setting(line: &str) -> Option<&str> {
    let line = line.trim();
    let Some(end) = line.find(['=', ':']) else {
        // A line of a key or of a certificate.
        return (line.len() >= PREFIX && !line.contains(' ')).then_some(line);
    };
    let value = line.get(end + 1..)?.trim().trim_matches(QUOTES);
    is_secret_name(line.get(..end)?).then_some(value)
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use cinder_csi_operator::kubernetes::decode_secret;
    use serde_json::json;

    use super::*;

    fn mk_values(text: &str) -> SecretValues {
        let secret = json!({"data": {"clouds.yaml": ByteString(text.as_bytes().to_vec())}});
        let mut values = SecretValues::default();
        values.add(&decode_secret(&secret.to_string()).expect("a Secret"));
        values
    }

    #[test]
    fn lines_with_secret_values_are_removed() {
        let conf = "[Global]\nauth-url = https://keystone\nusername = demo\npassword = \"geheim-1\"\n";
        let yaml = "clouds:\n  openstack:\n    auth:\n      application_credential_secret: geheim-2\n    region_name: RegionOne\n";
        let pem = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----\n";
        let flow = "clouds: {openstack: {auth: {username: demo, password: 'geheim-3'}, region_name: RegionOne}}\n";
        let inline =
            r#"{"clouds":{"openstack":{"auth":{"username":"demo","password":"geheim-4"},"region_name":"RegionOne"}}}"#;
        let indented = "{\n  \"password\": \"geheim-5\",\n  \"username\": \"demo\"\n}\n";
        let comma = "[Global]\nusername = demo\npassword = geheim,-6\n";
        let comment = "[Global]\nusername = demo\npassword = \"geheim-7\" ; until July\n";
        for (text, lines) in [
            (conf, vec!["got geheim-1"]),
            (yaml, vec!["x geheim-2\"}"]),
            (flow, vec!["x geheim-3,"]),
            (inline, vec!["x geheim-4\"}"]),
            (indented, vec!["x geheim-5\"}"]),
            (comma, vec!["x geheim,-6\"}"]),
            (comment, vec!["x geheim-7\"}"]),
            (pem, vec!["MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"]),
        ] {
            let values = mk_values(text);
            let encoded = serde_json::to_value(ByteString(text.as_bytes().to_vec())).expect("encoded");
            let encoded = encoded.as_str().expect("text");
            for line in lines
                .into_iter()
                .chain([encoded, &encoded[..40], "WARN kube_client::client: body"])
            {
                let log = format!("first RegionOne https://keystone demo\n{line}\nlast\n");
                let shown = values.remove_lines(&log);
                assert_eq!(
                    shown,
                    format!("first RegionOne https://keystone demo\n{LEFT_OUT}last\n"),
                    "{line}"
                );
            }
        }
    }
}
