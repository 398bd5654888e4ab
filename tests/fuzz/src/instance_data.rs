// SPDX-License-Identifier: Apache-2.0
//! Documents with the id of the server: `instance-data.json` of cloud-init, and that of the metadata service. Checks
//! that a reported id is a UUID.

use cinder_cloud::InstanceMetadata;

use crate::{Target, texts};

pub(crate) const TARGET: Target = Target {
    name: "instance-data",
    seeds: || {
        texts(&[
            r#"{"v1":{"cloud_name":"openstack","instance_id":"11111111-2222-4333-8444-555555555555","availability_zone":"nova","local_hostname":"w","region":null},"ds":{}}"#,
            r#"{"v1":{"cloud_name":"OpenStack","instance_id":"i-0001"}}"#,
            r#"{"uuid":"11111111-2222-4333-8444-555555555555","availability_zone":"nova","name":"worker-1","devices":[]}"#,
        ])
    },
    words: &[
        "{",
        "}",
        "[",
        "]",
        "null",
        "\"\"",
        "1e999",
        "\"v1\":",
        "\"uuid\":",
        "\"cloud_name\":\"openstack\",",
        "\"instance_id\":",
        "\"11111111-2222-4333-8444-555555555555\"",
        "{11111111-2222-4333-8444-555555555555}",
        "urn:uuid:",
        "\\ud800",
        "\\u0000",
        "ü",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    let readers = [InstanceMetadata::from_cloud_init, InstanceMetadata::from_document];
    for metadata in readers.into_iter().filter_map(|read| read(bytes).ok()) {
        let id = metadata.instance_id.as_str();
        let is_plain = id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        assert!(id.len() == 36 && is_plain, "the id {id:?}");
        assert!(metadata.availability_zone.is_none_or(|zone| !zone.is_empty()));
    }
}
