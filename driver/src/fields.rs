// SPDX-License-Identifier: Apache-2.0
//! Checks of single fields that the CSI specification requires for every RPC.

use tonic::Status;

use crate::status;

/// The maximum length of strings in bytes, unless a field specifies another.
const STRING_LIMIT: usize = 128;
/// The maximum length of a node id in bytes.
const NODE_ID_LIMIT: usize = 256;

/// Checks a required string of at most 128 bytes.
pub fn required<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    bounded(field, value, STRING_LIMIT).and_then(|value| present(field, value))
}

/// Checks a required node id.
pub fn required_node<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    bounded(field, value, NODE_ID_LIMIT).and_then(|value| present(field, value))
}

/// Checks a required name, which must not contain control characters except tab, line feed and carriage return.
pub fn required_name<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    let name = required(field, value)?;
    match name
        .chars()
        .find(|&c| c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
    {
        None => Ok(name),
        Some(c) => Err(status::invalid(
            field,
            format_args!("it holds the control character U+{:04X}", u32::from(c)),
        )),
    }
}

fn present<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    if value.is_empty() {
        Err(status::invalid(field, "it is required and missing"))
    } else {
        Ok(value)
    }
}

fn bounded<'a>(field: &str, value: &'a str, limit: usize) -> Result<&'a str, Status> {
    if value.len() > limit {
        return Err(status::invalid(
            field,
            format_args!("it has {} bytes, and {limit} are allowed", value.len()),
        ));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tonic::Code;

    use super::*;

    #[rstest]
    #[case("pvc-1", true)]
    #[case(&"x".repeat(128), true)]
    #[case("ünïcode name\twith tab", true)]
    #[case("", false)]
    #[case(&"x".repeat(129), false)]
    #[case("a\u{0}b", false)]
    #[case("a\u{8}b", false)]
    #[case("a\u{b}b", false)]
    #[case("a\u{7f}b", false)]
    #[case("a\u{9f}b", false)]
    fn names_follow_csi_specification(#[case] name: &str, #[case] good: bool) {
        match required_name("name", name) {
            Ok(checked) => assert!(good && checked == name),
            Err(status) => {
                assert!(!good, "{status}");
                assert_eq!(status.code(), Code::InvalidArgument);
                assert!(status.message().starts_with("name: "), "{status}");
            }
        }
    }

    #[test]
    fn node_id_may_have_256_bytes() {
        assert!(required_node("node_id", &"n".repeat(256)).is_ok());
        assert!(required_node("node_id", &"n".repeat(257)).is_err());
    }
}
