// SPDX-License-Identifier: Apache-2.0
//! Classifies the kubelet's refusals of the registration.

use std::fmt;

/// Part of the kubelet's message, since Kubernetes 1.14.
const COLLISION: &str = "topology value collision";
/// The maximum length of a name or value from the message. The key of a label has at most 317 characters.
const LONGEST_PART: usize = 320;

/// The cause of a refused registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RegistrationRefusal {
    /// The node has a topology label with another value. The kubelet's retries fail until the label is removed.
    LabelCollision(Option<LabelPair>),
    /// Another cause, as the kubelet reports it.
    Other(String),
}

/// The two values of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelPair {
    key: String,
    /// The value that the driver reports.
    reported: String,
    /// The existing value of the node.
    existing: String,
}

impl RegistrationRefusal {
    /// Classifies the kubelet's message.
    pub(super) fn parse(message: &str) -> Self {
        match message.to_ascii_lowercase().find(COLLISION) {
            // ASCII lower case does not change offsets.
            Some(at) => Self::LabelCollision(LabelPair::parse(&message[at..])),
            None => Self::Other(message.to_owned()),
        }
    }

    /// Returns the reason in one word.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::LabelCollision(_) => "TopologyLabelCollision",
            Self::Other(_) => "RegistrationRefused",
        }
    }
}

impl fmt::Display for RegistrationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LabelCollision(Some(LabelPair {
                key,
                reported,
                existing,
            })) => write!(
                f,
                "the kubelet refused the registration (TopologyLabelCollision): label {key} of this node has the value {existing:?}, and the driver reports \
                 {reported:?}. If {reported:?} is right, remove the label: kubectl label node NODE {key}-. The kubelet registers the driver \
                 at its next attempt. If the Go driver wrote the label, --zone-labels=sanitised of controller and nodes keeps it"
            ),
            Self::LabelCollision(None) => f.write_str(
                "the kubelet refused the registration (TopologyLabelCollision): a topology label of this node has another value than the driver reports. Remove \
                 the label: kubectl label node NODE KEY-. The kubelet's log names it",
            ),
            Self::Other(message) => write!(
                f,
                "the kubelet refused the registration: {message}; it tries again by itself"
            ),
        }
    }
}

impl LabelPair {
    /// Parses `driver reported "KEY":"VALUE" but existing label is "KEY":"VALUE"`.
    fn parse(message: &str) -> Option<Self> {
        // Labels contain no quotes, so every second part is a name or a value.
        let mut parts = message.split('"').skip(1).step_by(2);
        let mut part = || parts.next().filter(|part| is_label_text(part)).map(str::to_owned);
        let (key, reported, again, existing) = (part()?, part()?, part()?, part()?);
        (key == again && !key.is_empty()).then_some(Self {
            key,
            reported,
            existing,
        })
    }
}

/// Whether a text is a valid key or value of a label.
fn is_label_text(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    text.len() <= LONGEST_PART && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ZONE: &str = "topology.cinder.csi.openstack.org/zone";

    #[rstest]
    #[case::plain("")]
    #[case::after_its_retries("error updating node: timed out waiting for the condition; caused by: ")]
    #[case::with_a_prefix(
        "RegisterPlugin error -- plugin registration failed with err: error updating Node object with CSI driver node info: "
    )]
    fn label_collision_names_label_and_command(#[case] prefix: &str) {
        let message = format!(
            "{prefix}detected topology value collision: driver reported \"{ZONE}\":\"x--zone_20one\" but existing label is \
             \"{ZONE}\":\"zone-one\""
        );
        let refusal = RegistrationRefusal::parse(&message);
        assert_eq!(refusal.reason(), "TopologyLabelCollision");
        let text = refusal.to_string();
        for part in ["\"zone-one\"", "\"x--zone_20one\"", "--zone-labels=sanitised"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(text.contains(&format!("kubectl label node NODE {ZONE}-.")), "{text}");
        assert!(!text.contains("tries again"), "{text}");
    }

    #[rstest]
    #[case::without_names("detected topology value collision")]
    #[case::in_other_case("Detected Topology Value Collision: label zone")]
    #[case::two_labels("topology value collision: driver reported \"a\":\"1\" but existing label is \"b\":\"2\"")]
    #[case::text_that_is_no_label("topology value collision: \"$(reboot)\":\"1\" \"$(reboot)\":\"2\"")]
    fn other_collision_messages_have_same_remedy(#[case] message: &str) {
        let refusal = RegistrationRefusal::parse(message);
        assert_eq!(refusal, RegistrationRefusal::LabelCollision(None));
        let text = refusal.to_string();
        assert!(
            text.contains("kubectl label node NODE KEY-") && !text.contains("reboot"),
            "{text}"
        );
    }

    #[test]
    fn other_refusals_quote_kubelet_message() {
        let refusal = RegistrationRefusal::parse("another of this name");
        assert_eq!(refusal.reason(), "RegistrationRefused");
        assert!(refusal.to_string().contains("another of this name; it tries again"));
    }
}
