// SPDX-License-Identifier: Apache-2.0
//! CSI requests in wire format. Checks that the decoders never panic, and that printed requests contain no secret.

use std::collections::BTreeMap;
use std::fmt::Debug;

use cinder_csi_driver::parameters::{CreateParameters, MutableParameters, SnapshotParameters};
use csi_proto::csi::v1::{
    ControllerModifyVolumeRequest, ControllerPublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest,
};
use prost::Message;

use crate::{Target, texts};

const SEEDS: &[&str] = &[
    "\n\x05pvc-1\x12\x06\x08\x01\x10\u{7f}\x1a\x00\x22\x0c\n\x04type\x12\x04fast",
    "\n\x01a\x1a\x0c\x12\x06\n\x04ext4\x1a\x02\x08\x01*\x11\n\x05cloud\x12\x08password",
    "\n\x24\x36f1c2f3a-52c0-4a4e-9d59-0c7a3f1be00\x12\x03a/b\x1a\x02/s\x22\x06\x12\x00\x1a\x02\x08\x01",
    "\n\x02v1\x12\x0b\n\x04zone\x12\x03a b2\x08\n\x01k\x12\x03key:\x06\n\x01m\x12\x01n",
];

pub(crate) const TARGET: Target = Target {
    name: "request",
    // A name, a capacity, a parameter, a secret, a capability (mount, single writer), and zones.
    seeds: || texts(SEEDS),
    words: &[
        "\n\x05cloud",
        "\x12\x04fast",
        "type",
        "\x08\x05",
        "\x1a\x00",
        "\u{0}",
        "ü",
        "*\x07\n\x01k\x12\x02vv",
        "metadata.",
        "mkfsOptions",
        "mkfs-options",
    ],
    eat,
};

/// Whether the printed form of a request is independent of its secrets.
fn hides<T: Message + Default + Debug + Clone>(
    bytes: &[u8],
    secrets: impl Fn(&mut T) -> &mut BTreeMap<String, String>,
) -> Option<T> {
    let request = T::decode(bytes).ok()?;
    let mut other = request.clone();
    for value in secrets(&mut other).values_mut() {
        value.insert_str(0, "other ");
    }
    assert_eq!(format!("{request:?}"), format!("{other:?}"), "a secret is shown");
    let again = T::decode(request.encode_to_vec().as_slice());
    assert!(
        again.is_ok_and(|again| again.encode_to_vec() == request.encode_to_vec()),
        "encoded as something else"
    );
    Some(request)
}

fn eat(bytes: &[u8]) {
    if let Some(request) = hides::<CreateVolumeRequest>(bytes, |request| &mut request.secrets) {
        let keys = request.parameters.len();
        if let Ok(parameters) = CreateParameters::decode(request.parameters) {
            assert!(parameters.unknown().len() <= keys, "more keys than there were");
        }
        // The decoder returns a result or an error, and never panics.
        drop(MutableParameters::decode(&request.mutable_parameters));
    }
    if let Some(request) = hides::<CreateSnapshotRequest>(bytes, |request| &mut request.secrets) {
        let keys = request.parameters.len();
        if let Ok(parameters) = SnapshotParameters::decode(request.parameters) {
            assert!(parameters.unknown().len() <= keys, "more keys than there were");
        }
    }
    hides::<ControllerPublishVolumeRequest>(bytes, |request| &mut request.secrets);
    hides::<ControllerModifyVolumeRequest>(bytes, |request| &mut request.secrets);
    hides::<NodeStageVolumeRequest>(bytes, |request| &mut request.secrets);
    hides::<NodePublishVolumeRequest>(bytes, |request| &mut request.secrets);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_requests_have_secret_and_parameters() {
        let decoded = SEEDS.iter().map(|seed| CreateVolumeRequest::decode(seed.as_bytes()));
        let requests: Vec<_> = decoded.filter_map(Result::ok).collect();
        assert!(
            requests
                .iter()
                .any(|request| request.secrets.get("cloud").is_some_and(|value| value == "password"))
        );
        assert!(requests.iter().any(|request| request.parameters.contains_key("type")));
    }
}
