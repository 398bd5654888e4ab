// SPDX-License-Identifier: Apache-2.0
//! Parts of error messages, each empty without a value, and the texts of Cinder that have a meaning.

use crate::ids::ServerId;

/// The maximum number of names in a message.
const MOST_NAMED: usize = 10;

pub(super) fn request_text(id: Option<&str>) -> String {
    id.map(|id| format!(" (request {id})")).unwrap_or_default()
}

pub(super) fn region_text(name: Option<&str>) -> String {
    name.map(|name| format!(" in region {name}")).unwrap_or_default()
}

/// The API version that the driver needs from a service.
pub(super) fn version_text(service: &str) -> &'static str {
    match service {
        "compute" => "v2.1 (or v2)",
        _ => "v3",
    }
}

pub(super) fn message_text(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

pub(super) fn servers_text(servers: &[ServerId]) -> String {
    match servers {
        [] => "a server that Cinder does not name".to_owned(),
        [one] => format!("server {one}"),
        many => format!("servers {}", names_text(many.iter().map(ServerId::to_string))),
    }
}

/// The first names of a list, and the number of the remaining ones.
pub(crate) fn names_text(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MOST_NAMED);
    let mut shown: Vec<String> = names.take(MOST_NAMED).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

/// Whether a message of Cinder means that its scheduler found no backend.
///
/// The texts are from cinder.message.defined_messages and from the exceptions of the scheduler.
pub(super) fn is_out_of_space(message: &str) -> bool {
    let message = message.to_lowercase();
    [
        "no valid host",
        "no valid backend",
        "no weighed backend",
        "weighted backend",
        "no backend",
    ]
    .iter()
    .any(|text| message.contains(text))
        || (message.contains("could not find any available") && message.contains("backend"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_truncated_with_count() {
        let names = |count: usize| names_text((0..count).map(|number| number.to_string()));
        assert_eq!(names(0), "");
        assert_eq!(names(3), "0, 1, 2");
        assert_eq!(names(MOST_NAMED + 4_996).split(", ").last(), Some("and 4996 more"));
    }
}
