// SPDX-License-Identifier: Apache-2.0
//! Decides which server this node is, from the firmware and the sources.

use cinder_cloud::{InstanceMetadata, ServerId};
use csi_host::Firmware;

use crate::node_error::{IdentityClaim, InstanceError};

const FIRMWARE: &str = "the firmware (product_uuid)";

/// The report of a source.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The source, for messages.
    pub(super) source: String,
    pub(super) metadata: InstanceMetadata,
}

impl Answer {
    pub(super) fn names(&self, id: &ServerId) -> bool {
        is_equal(&self.metadata.instance_id, id)
    }

    fn claim(&self) -> IdentityClaim {
        IdentityClaim {
            origin: self.source.clone(),
            id: self.metadata.instance_id.to_string(),
        }
    }
}

/// Determines the server from all reports. `problems` are the reasons of the sources that did not answer.
///
/// | firmware | sources | result |
/// |---|---|---|
/// | unknown | any | refused |
/// | any | two that disagree | refused |
/// | a server | agree with it, in either byte order | the id as spelled by the sources |
/// | a server | one disagrees with it | refused |
/// | a server | none answered | the firmware's id, unless its byte order is uncertain |
/// | silent | agree | the id of the sources |
/// | silent | none answered | refused |
pub(super) fn confirm(
    firmware: &Firmware,
    answers: &[Answer],
    problems: Vec<String>,
) -> Result<InstanceMetadata, InstanceError> {
    if let Firmware::Unknown(reason) = firmware {
        let reason = reason.clone();
        return Err(InstanceError::Firmware { reason });
    }
    let Firmware::Server { uuid, may_be_swapped } = firmware else {
        return combine(answers)?.ok_or(InstanceError::Unknown { problems });
    };
    let dissenter = answers
        .iter()
        .find(|answer| contradiction(firmware, &answer.metadata.instance_id).is_some());
    if let Some(answer) = dissenter {
        let first = IdentityClaim {
            origin: FIRMWARE.to_owned(),
            id: uuid.clone(),
        };
        let second = answer.claim();
        return Err(InstanceError::Disagreement { first, second });
    }
    match combine(answers)? {
        Some(metadata) => Ok(metadata),
        None if *may_be_swapped => Err(InstanceError::ByteOrder {
            uuid: uuid.clone(),
            swapped: swap_fields(uuid),
            problems,
        }),
        None => Ok(identity(ServerId::new(uuid))),
    }
}

/// Returns the configured id, with the zone of a source that reports the same server.
pub(super) fn use_configured(id: &ServerId, answers: &[Answer]) -> InstanceMetadata {
    let zones = answers.iter().filter(|answer| answer.names(id));
    InstanceMetadata {
        availability_zone: zones
            .into_iter()
            .find_map(|answer| answer.metadata.availability_zone.clone()),
        ..identity(id.clone())
    }
}

/// Returns the firmware's UUID if it differs from this server in both byte orders.
pub(super) fn contradiction<'a>(firmware: &'a Firmware, id: &ServerId) -> Option<&'a str> {
    let Firmware::Server { uuid, .. } = firmware else {
        return None;
    };
    let spellings = [uuid.clone(), swap_fields(uuid)];
    let agrees = spellings
        .iter()
        .any(|spelling| id.as_str().eq_ignore_ascii_case(spelling));
    (!agrees).then_some(uuid)
}

/// Returns the identity on which all sources agree, with the first zone; `None` without an answer.
fn combine(answers: &[Answer]) -> Result<Option<InstanceMetadata>, InstanceError> {
    let Some((first, others)) = answers.split_first() else {
        return Ok(None);
    };
    if let Some(other) = others.iter().find(|other| !other.names(&first.metadata.instance_id)) {
        return Err(InstanceError::Disagreement {
            first: first.claim(),
            second: other.claim(),
        });
    }
    let zone = answers
        .iter()
        .find_map(|answer| answer.metadata.availability_zone.clone());
    Ok(Some(InstanceMetadata {
        availability_zone: zone,
        ..first.metadata.clone()
    }))
}

fn identity(instance_id: ServerId) -> InstanceMetadata {
    InstanceMetadata {
        instance_id,
        availability_zone: None,
        name: None,
    }
}

fn is_equal(one: &ServerId, other: &ServerId) -> bool {
    one.as_str().eq_ignore_ascii_case(other.as_str())
}

/// Swaps the bytes in the first three fields of a UUID.
///
/// SMBIOS defines these fields as little-endian numbers since version 2.6. Firmware of ESXi and Hyper-V may store them
/// in the order of the text.
fn swap_fields(uuid: &str) -> String {
    let swap = |field: &str| -> String {
        let bytes: Vec<&str> = (0..field.len())
            .step_by(2)
            .filter_map(|start| field.get(start..start + 2))
            .collect();
        bytes.into_iter().rev().collect()
    };
    let fields = uuid.split('-').enumerate();
    let fields: Vec<String> = fields
        .map(|(index, field)| if index < 3 { swap(field) } else { field.to_owned() })
        .collect();
    fields.join("-")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ID: &str = "6c1f2b9e-0a0b-4c0d-8000-000000000001";
    const SWAPPED: &str = "9e2b1f6c-0b0a-0d4c-8000-000000000001";
    const OTHER: &str = "99999999-2222-4333-8444-555555555555";

    fn server(uuid: &str) -> Firmware {
        Firmware::Server {
            uuid: uuid.to_owned(),
            may_be_swapped: false,
        }
    }

    fn swapping(uuid: &str) -> Firmware {
        Firmware::Server {
            uuid: uuid.to_owned(),
            may_be_swapped: true,
        }
    }

    fn unknown() -> Firmware {
        Firmware::Unknown("product_uuid cannot be read".to_owned())
    }

    fn answers(ids: &[&str]) -> Vec<Answer> {
        let answer = |(index, id): (usize, &&str)| Answer {
            source: format!("source {index}"),
            metadata: identity(ServerId::new(*id)),
        };
        ids.iter().enumerate().map(answer).collect()
    }

    /// `Ok` is the id, `Err` a part of the message.
    #[rstest]
    #[case::server_agrees(server(ID), &[ID], Ok(ID))]
    #[case::server_agrees_in_capitals(server(ID), &["6C1F2B9E-0A0B-4C0D-8000-000000000001"], Ok("6C1F2B9E-0A0B-4C0D-8000-000000000001"))]
    #[case::server_agrees_swapped(server(SWAPPED), &[ID], Ok(ID))]
    #[case::esxi_agrees(swapping(ID), &[ID], Ok(ID))]
    #[case::esxi_agrees_swapped(swapping(SWAPPED), &[ID], Ok(ID))]
    #[case::server_disagrees(server(ID), &[OTHER], Err(OTHER))]
    #[case::server_disagrees_with_second(server(ID), &[ID, OTHER], Err("source 1"))]
    #[case::sources_use_both_orders(server(ID), &[ID, SWAPPED], Err("source 1"))]
    #[case::server_alone(server(ID), &[], Ok(ID))]
    #[case::esxi_alone(swapping(ID), &[], Err(SWAPPED))]
    #[case::unknown_with_answer(unknown(), &[ID], Err("cannot be read"))]
    #[case::unknown_alone(unknown(), &[], Err("cannot be read"))]
    #[case::silent_with_answer(Firmware::Silent, &[ID], Ok(ID))]
    #[case::silent_with_agreement(Firmware::Silent, &[ID, ID], Ok(ID))]
    #[case::silent_with_disagreement(Firmware::Silent, &[ID, OTHER], Err(OTHER))]
    #[case::silent_does_not_swap(Firmware::Silent, &[ID, SWAPPED], Err(SWAPPED))]
    #[case::silent_alone(Firmware::Silent, &[], Err("configDrive: absent"))]
    fn identity_needs_agreement(
        #[case] firmware: Firmware,
        #[case] ids: &[&str],
        #[case] expected: Result<&str, &str>,
    ) {
        let result = confirm(&firmware, &answers(ids), vec!["configDrive: absent".to_owned()]);
        match (result, expected) {
            (Ok(metadata), Ok(id)) => assert_eq!(metadata.instance_id.as_str(), id),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (result, expected) => panic!("{result:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn disagreement_names_both_values_and_origins() {
        let error = confirm(&server(ID), &answers(&[OTHER]), Vec::new()).expect_err("they disagree");
        let message = error.to_string();
        for part in [ID, OTHER, FIRMWARE, "source 0", "--instance-id"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[rstest]
    #[case(server(ID), ID, None)]
    #[case(server(SWAPPED), ID, None)]
    #[case(server(ID), OTHER, Some(ID))]
    #[case(Firmware::Silent, OTHER, None)]
    #[case(unknown(), OTHER, None)]
    fn only_known_firmware_contradicts(#[case] firmware: Firmware, #[case] id: &str, #[case] expected: Option<&str>) {
        assert_eq!(contradiction(&firmware, &ServerId::new(id)), expected);
    }

    #[test]
    fn configured_server_takes_zone_of_same_server() {
        let mut answers = answers(&[OTHER, ID]);
        for (answer, zone) in answers.iter_mut().zip(["zone-1", "zone-2"]) {
            answer.metadata.availability_zone = Some(zone.to_owned());
        }
        let metadata = use_configured(&ServerId::new(ID), &answers);
        assert_eq!(metadata.instance_id.as_str(), ID);
        assert_eq!(metadata.availability_zone.as_deref(), Some("zone-2"));
    }
}
