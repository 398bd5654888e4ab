// SPDX-License-Identifier: Apache-2.0
//! Restrictions that the operator's flags impose on the authors of CinderCSIDrivers. The authors determine the
//! programs that run on every node as root.

/// The restrictions of an installation. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Whether spec.overrides is forbidden.
    pub no_overrides: bool,
    /// Allowed registries, with optional paths. Empty allows all.
    pub registries: Vec<String>,
}

impl Restrictions {
    /// Whether images must come from certain registries.
    pub fn has_registries(&self) -> bool {
        !self.registries.is_empty()
    }

    /// Whether an image may be used. The registry must match complete path segments of the image.
    pub fn allows(&self, image: &str) -> bool {
        let is_below = |registry: &String| {
            let rest = image.strip_prefix(registry.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.registries.is_empty() || self.registries.iter().any(is_below)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::any(&[], "evil.example.org/x", true)]
    #[case::below(&["registry.example.org/storage"], "registry.example.org/storage/driver:v1", true)]
    #[case::with_a_slash(&["registry.example.org/"], "registry.example.org/driver:v1", true)]
    #[case::one_of_two(&["a.example.org", "b.example.org"], "b.example.org/x", true)]
    #[case::another(&["registry.example.org"], "evil.example.org/x", false)]
    #[case::another_that_begins_so(&["registry.example.org"], "registry.example.org.evil.net/x", false)]
    #[case::another_port(&["registry.example.org"], "registry.example.org:5000/x", false)]
    #[case::without_a_registry(&["registry.example.org"], "busybox", false)]
    fn images_must_match_allowed_registries(#[case] registries: &[&str], #[case] image: &str, #[case] allowed: bool) {
        let restrictions = Restrictions {
            registries: registries.iter().map(|registry| (*registry).to_owned()).collect(),
            ..Restrictions::default()
        };
        assert_eq!(restrictions.allows(image), allowed);
    }
}
