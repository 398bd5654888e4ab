// SPDX-License-Identifier: Apache-2.0
//! Removes private parts of objects: content of Secrets, free text of administrators, and containers that other clients added to pods.

use std::sync::LazyLock;

use cinder_csi_driver::args::Args as DriverArgs;
use cinder_csi_operator::args::Args as OperatorArgs;
use cinder_operator_core::releases::COMPONENTS;
use clap::{Command, CommandFactory as _};
use serde_json::{Map, Value, json};

const LEFT_OUT: &str = "(left out)";

/// Container of the operator's pods.
const OPERATOR_CONTAINER: &str = "operator";

/// Fields of a container that another client added to a pod, and of its status.
const FOREIGN_FIELDS: [&str; 4] = ["name", "image", "ready", "restartCount"];

/// Fields of an event.
const EVENT_FIELDS: [&str; 13] = [
    "action",
    "deprecatedCount",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "eventTime",
    "metadata",
    "note",
    "reason",
    "regarding",
    "related",
    "reportingController",
    "series",
    "type",
];

/// Domains of annotations that the operator, Kubernetes and its tools write.
const KNOWN_DOMAINS: [&str; 3] = ["openstack.org", "kubernetes.io", "k8s.io"];

/// The flags of the sidecars that the operator sets.
const SIDECAR_FLAGS: [&str; 24] = [
    "capacity-ownerref-level",
    "csi-address",
    "default-fstype",
    "enable-capacity",
    "extra-create-metadata",
    "feature-gates",
    "handle-volume-inuse-error",
    "http-endpoint",
    "kube-api-burst",
    "kube-api-qps",
    "kubelet-registration-path",
    "leader-election",
    "leader-election-lease-duration",
    "leader-election-namespace",
    "leader-election-renew-deadline",
    "leader-election-retry-period",
    "plugin-registration-path",
    "probe-timeout",
    "retry-interval-max",
    "snapshot-name-prefix",
    "timeout",
    "v",
    "worker-threads",
    "workers",
];

/// The flags that are shown with their values.
static KNOWN_FLAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut flags: Vec<String> = SIDECAR_FLAGS.map(str::to_owned).into();
    add_flags(&DriverArgs::command(), &mut flags);
    add_flags(&OperatorArgs::command(), &mut flags);
    flags
});

fn add_flags(command: &Command, flags: &mut Vec<String>) {
    flags.extend(
        command
            .get_arguments()
            .filter_map(|flag| flag.get_long())
            .map(str::to_owned),
    );
    command.get_subcommands().for_each(|command| add_flags(command, flags));
}

/// Whether the operator puts a container of this name into its pods.
pub(super) fn is_own_container(name: &str) -> bool {
    name == OPERATOR_CONTAINER || COMPONENTS.iter().any(|row| row.container == name)
}

/// Removes the records of the API server and of kubectl from an object.
pub(crate) fn without_bookkeeping(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            // Contains a copy of the applied object.
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
}

/// Removes the private parts of an object.
pub(super) fn redact(object: &mut Value) {
    // Applies to ConfigMaps too: the operator records objects in one.
    for field in ["data", "stringData", "binaryData"] {
        if let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) {
            hide_values(data);
        }
    }
    without_bookkeeping(object);
    redact_fields(object);
}

/// Keeps the known fields of an event.
pub(super) fn redact_event(event: &mut Value) {
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|name, _| EVENT_FIELDS.contains(&name.as_str()));
    }
    if is_about_foreign_container(event) {
        hide(event, "note");
    }
    redact(event);
}

/// Whether an event is about a container that another client added to a pod. Its note can have output of that container's probes.
fn is_about_foreign_container(event: &Value) -> bool {
    // As in `spec.containers{NAME}`.
    let path = event["regarding"]["fieldPath"].as_str().unwrap_or_default();
    let name = path.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}'));
    name.is_some_and(|name| !is_own_container(name))
}

fn redact_fields(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("://") => *text = without_users(text),
        Value::Array(values) => values.iter_mut().for_each(redact_fields),
        Value::Object(fields) => {
            for (name, value) in fields {
                redact_field(name, value);
                redact_fields(value);
            }
        }
        _ => {}
    }
}

fn redact_field(name: &str, value: &mut Value) {
    match (name, value) {
        ("env" | "httpHeaders", Value::Array(items)) => items.iter_mut().for_each(|item| hide(item, "value")),
        ("overrides", Value::Array(items)) => items.iter_mut().for_each(|item| hide(item, "patch")),
        ("command", Value::Array(words)) => *words = vec![json!(LEFT_OUT)],
        ("args", Value::Array(words)) => words.iter_mut().for_each(redact_argument),
        ("volumeAttributes", Value::Object(attributes)) => hide_values(attributes),
        ("annotations" | "podAnnotations", Value::Object(annotations)) => {
            let foreign = annotations.iter_mut().filter(|(key, _)| !has_known_domain(key));
            foreign.for_each(|(_, value)| *value = json!(LEFT_OUT));
        }
        (
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "containerStatuses"
            | "initContainerStatuses"
            | "ephemeralContainerStatuses",
            Value::Array(containers),
        ) => containers.iter_mut().for_each(reduce_container),
        _ => {}
    }
}

fn hide(item: &mut Value, field: &str) {
    if let Some(value) = item.get_mut(field) {
        *value = json!(LEFT_OUT);
    }
}

fn hide_values(fields: &mut Map<String, Value>) {
    fields.values_mut().for_each(|value| *value = json!(LEFT_OUT));
}

fn has_known_domain(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let is_below = |known: &&str| {
        domain
            .strip_suffix(*known)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    KNOWN_DOMAINS.iter().any(is_below)
}

/// Keeps the values of known flags, and the names of all flags.
fn redact_argument(argument: &mut Value) {
    let text = argument.as_str().unwrap_or_default();
    let flag = text.split('=').next().unwrap_or_default();
    let name = flag.trim_start_matches('-');
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_flag = flag.starts_with('-') && !name.is_empty() && name.bytes().all(is_name);
    // The commands of the operator.
    let is_word = matches!(text, "run");
    let is_shown = is_word || is_flag && (flag == text || KNOWN_FLAGS.iter().any(|known| known == name));
    if !is_shown {
        let shown = if is_flag {
            format!("{flag}={LEFT_OUT}")
        } else {
            LEFT_OUT.to_owned()
        };
        *argument = json!(shown);
    }
}

fn reduce_container(container: &mut Value) {
    let is_own = container["name"].as_str().is_some_and(is_own_container);
    if let Some(fields) = container.as_object_mut().filter(|_| !is_own) {
        fields.retain(|name, _| FOREIGN_FIELDS.contains(&name.as_str()));
    }
}

fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let shown = user_end(part).map_or_else(|| part.to_owned(), |end| format!("(left out){}", &part[end..]));
        hidden.push_str("://");
        hidden.push_str(&shown);
    }
    hidden
}

/// The position of the `@` after the user and password of a URL, which begins after its scheme.
fn user_end(rest: &str) -> Option<usize> {
    let end_of = |text: &str, ends: &[char]| text.find(ends).unwrap_or(text.len());
    let url = &rest[..end_of(rest, &[' ', '\t', '\r', '\n', '"', '\'', ','])];
    let authority = &url[..end_of(url, &['/'])];
    // Many configurations do not escape a slash in a password. Text behind a colon is a password unless it is a port.
    let has_port = |(_, port): (&str, &str)| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = authority.rsplit_once(':').is_none_or(has_port) || authority.starts_with('[');
    authority.rfind('@').or_else(|| url.rfind('@').filter(|_| !is_host))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn secret_keeps_the_names_of_its_keys() {
        let mut secret = json!({
            "kind": "Secret",
            "metadata": {"name": "s", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"stringData\":{\"clouds.yaml\":\"geheim\"}}",
                "note": "geheim",
                "csi.openstack.org/owner-uid": "kept",
            }},
            "data": {"clouds.yaml": "Z2VoZWlt"},
        });

        redact(&mut secret);

        assert_eq!(secret["data"], json!({"clouds.yaml": "(left out)"}));
        let annotations = json!({"note": "(left out)", "csi.openstack.org/owner-uid": "kept"});
        assert_eq!(secret["metadata"]["annotations"], annotations);
        assert!(!secret.to_string().contains("geheim"));
    }

    #[test]
    fn secret_without_a_kind_is_redacted() {
        let mut secret = json!({"metadata": {"name": "s"}, "type": "Opaque", "data": {"key": "Z2VoZWlt"}});

        redact(&mut secret);

        assert_eq!(secret["data"]["key"], "(left out)");
    }

    #[test]
    fn passwords_of_urls_are_removed_everywhere() {
        let mut driver = json!({"spec": {"proxy": {
            "https": "http://user:geheim@proxy.example.org:3128",
            "no": "169.254.169.254",
            "url": "https://example.org/a@b",
            "slash": "http://user:ge/heim@proxy",
            "port": "http://proxy:3128/a@b",
            "both": "{HTTP: \"http://a:geheim@p\", HTTPS: \"http://b:ge@heim@p:1/x\"}\nhttp://c:geheim@q",
        }}});

        redact(&mut driver);

        let shown = &driver["spec"]["proxy"];
        assert_eq!(shown["https"], "http://(left out)@proxy.example.org:3128");
        assert_eq!(shown["no"], "169.254.169.254");
        assert_eq!(shown["url"], "https://example.org/a@b");
        assert_eq!(shown["slash"], "http://(left out)@proxy");
        assert_eq!(shown["port"], "http://proxy:3128/a@b");
        assert_eq!(
            shown["both"],
            "{HTTP: \"http://(left out)@p\", HTTPS: \"http://(left out)@p:1/x\"}\nhttp://(left out)@q"
        );
    }

    #[test]
    fn free_text_of_administrators_is_removed() {
        let mut objects = json!({"kind": "CinderCSIDriver", "spec": {
            "overrides": [{"target": {"kind": "DaemonSet", "name": "x"}, "patch": "env: geheim"}],
            "controller": {"podAnnotations": {"vault.example.org/token": "geheim"}},
            "template": {"spec": {
                "containers": [
                    {"name": "cinder-csi-driver", "image": "i", "env": [{"name": "A", "value": "geheim"},
                        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                        "args": ["--cluster=c", "--token=geheim", "geheim", "--quiet", "--GEHEIM", "-v=4"],
                        "command": ["sh", "-c", "geheim"],
                        "livenessProbe": {"exec": {"command": ["geheim"]}, "httpGet": {"httpHeaders": [{"name": "A", "value": "geheim"}]}}},
                    {"name": "injected", "image": "j", "volumeMounts": [{"name": "geheim"}]},
                ],
                "volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"token": "geheim"}}}],
            }},
        }});

        redact(&mut objects);

        assert!(!objects.to_string().to_lowercase().contains("geheim"), "{objects:#}");
        let containers = &objects["spec"]["template"]["spec"]["containers"];
        let arguments = [
            "--cluster=c",
            "--token=(left out)",
            "(left out)",
            "--quiet",
            "(left out)",
            "-v=4",
        ];
        assert_eq!(containers[0]["args"], json!(arguments));
        assert_eq!(containers[0]["env"][0]["name"], "A");
        assert_eq!(
            containers[0]["env"][1]["valueFrom"]["fieldRef"]["fieldPath"],
            "spec.nodeName"
        );
        assert_eq!(containers[1], json!({"name": "injected", "image": "j"}));
        assert_eq!(objects["spec"]["overrides"][0]["target"]["name"], "x");
    }

    #[test]
    fn status_of_injected_container_has_no_message() {
        let state = json!({"terminated": {"exitCode": 1, "message": "m"}});
        let status = |name: &str| json!({"name": name, "ready": false, "state": state});
        for list in [
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ] {
            let mut pod = json!({"status": {(list): [status("csi-attacher"), status("injected")]}});

            redact(&mut pod);

            let expected = [status("csi-attacher"), json!({"name": "injected", "ready": false})];
            assert_eq!(pod["status"][list], json!(expected));
        }
    }

    #[test]
    fn arguments_of_own_containers_are_shown() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/samples/cindercsidriver.yaml");
        let mut out = Vec::new();
        let args = match OperatorArgs::try_parse_from(["cinder-csi-operator", "render", sample])
            .expect("arguments")
            .command
        {
            cinder_csi_operator::args::Command::Render(args) => args,
            other => panic!("{other:?}"),
        };
        cinder_csi_operator::commands::render::render(&args, &mut out).expect("rendered");
        let mut count = 0;
        let text = String::from_utf8(out).expect("text");
        // The first document also begins with the separator. The end of a line in PEM must not count as one.
        for document in format!("\n{text}").split("\n---\n").skip(1) {
            let mut object: Value = serde_yaml::from_str(document).expect("an object");
            redact(&mut object);
            let containers = object
                .pointer("/spec/template/spec/containers")
                .and_then(Value::as_array);
            for container in containers.into_iter().flatten() {
                assert!(!container["args"].to_string().contains(LEFT_OUT), "{container:#}");
                assert!(container.get("image").is_some(), "{container:#}");
                count += 1;
            }
        }
        assert!(count >= 5, "{count}");
    }

    #[test]
    fn note_about_injected_container_is_removed() {
        for (container, expected) in [("csi-attacher", "n"), ("injected", LEFT_OUT)] {
            for list in ["containers", "initContainers"] {
                let path = format!("spec.{list}{{{container}}}");
                let mut event = json!({"regarding": {"kind": "Pod", "fieldPath": path}, "note": "n"});
                redact_event(&mut event);
                assert_eq!(event["note"], expected, "{path}");
            }
        }
    }

    #[test]
    fn event_keeps_known_fields() {
        let mut event = json!({"metadata": {"name": "e", "annotations": {"a": "geheim"}}, "note": "n", "deprecatedSource": {"host": "geheim"}});
        redact_event(&mut event);
        assert_eq!(
            event,
            json!({"metadata": {"name": "e", "annotations": {"a": "(left out)"}}, "note": "n"})
        );
    }
}
