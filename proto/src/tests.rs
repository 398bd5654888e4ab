// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::FileDescriptorSet;

use crate::csi::v1::validate_volume_capabilities_response::Confirmed;
use crate::csi::v1::{CreateVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, Volume};

/// Messages with a field marked `csi_secret` in CSI 1.13.
const MESSAGES_WITH_SECRETS: usize = 22;
/// Messages with a volume context and without a secret: `Volume` and the confirmation of its capabilities.
const MESSAGES_WITH_CONTEXT_ONLY: usize = 2;
/// Fields with a volume context.
const CONTEXTS: usize = 6;

fn secrets() -> BTreeMap<String, String> {
    BTreeMap::from([("luks-key".to_owned(), "correct horse".to_owned())])
}

#[test]
fn debug_hides_only_secrets() {
    let request = CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        parameters: BTreeMap::from([("type".to_owned(), "fast".to_owned())]),
        secrets: secrets(),
        ..CreateVolumeRequest::default()
    };
    let shown = format!("{request:?} {request:#?}");
    assert!(shown.contains("name: \"pvc-1\""), "{shown}");
    assert!(shown.contains("\"type\": \"fast\""), "{shown}");
    assert!(shown.contains("secrets: <redacted>"), "{shown}");
    assert!(
        !shown.contains("luks-key") && !shown.contains("correct horse"),
        "{shown}"
    );
}

#[test]
fn debug_of_tonic_request_hides_secrets() {
    let request = tonic::Request::new(NodeStageVolumeRequest {
        secrets: secrets(),
        ..NodeStageVolumeRequest::default()
    });
    let shown = format!("{request:?}");
    assert!(
        shown.contains("<redacted>") && !shown.contains("correct horse"),
        "{shown}"
    );
}

#[test]
fn messages_with_secrets_have_redacting_debug() {
    let generated = include_str!(concat!(env!("OUT_DIR"), "/redacted.rs"));
    assert_eq!(
        generated.matches("impl ::core::fmt::Debug for ").count(),
        MESSAGES_WITH_SECRETS + MESSAGES_WITH_CONTEXT_ONLY
    );
    assert_eq!(generated.matches("crate::context::RedactedContext(").count(), CONTEXTS);
    assert_eq!(generated.matches("<redacted>").count(), MESSAGES_WITH_SECRETS);
}

#[test]
fn unknown_values_of_volume_contexts_are_redacted() {
    let volume_context = BTreeMap::from([
        (
            "csi.storage.k8s.io/serviceAccount.tokens".to_owned(),
            "correct horse".to_owned(),
        ),
        ("later.example.com/key".to_owned(), "correct horse".to_owned()),
        ("mkfsOptions".to_owned(), "-m 1".to_owned()),
    ]);
    let volume = Volume {
        volume_context: volume_context.clone(),
        ..Volume::default()
    };
    let confirmed = Confirmed {
        volume_context: volume_context.clone(),
        ..Confirmed::default()
    };
    let publish = NodePublishVolumeRequest {
        volume_context,
        ..NodePublishVolumeRequest::default()
    };
    for shown in [format!("{volume:?}"), format!("{confirmed:?}"), format!("{publish:#?}")] {
        assert!(!shown.contains("correct horse"), "{shown}");
        assert!(
            shown.contains("serviceAccount.tokens\": <redacted>") && shown.contains("-m 1"),
            "{shown}"
        );
    }
}

#[test]
fn secrets_are_encoded_on_the_wire() {
    let request = CreateVolumeRequest {
        secrets: secrets(),
        ..CreateVolumeRequest::default()
    };
    let decoded = CreateVolumeRequest::decode(request.encode_to_vec().as_slice()).expect("decodes");
    assert_eq!(decoded.secrets, secrets());
}

#[test]
fn descriptors_include_interfaces_and_imports() {
    let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).expect("decodes");
    let mut files: Vec<&str> = set.file.iter().filter_map(|file| file.name.as_deref()).collect();
    files.sort_unstable();
    assert_eq!(
        files,
        [
            "csi.proto",
            "google/protobuf/descriptor.proto",
            "google/protobuf/timestamp.proto",
            "google/protobuf/wrappers.proto",
            "pluginregistration.proto",
        ]
    );
}
