// SPDX-License-Identifier: Apache-2.0
//! Parts of error messages; each is empty without a value.

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
