// SPDX-License-Identifier: Apache-2.0
//! Validates names of objects. Other text must not become a part of a request path.

/// Maximum length of a name.
pub const LONGEST_NAME: usize = 253;

/// Whether a text is a DNS subdomain (RFC 1123), as names of objects are. Such a name contains no slash, question
/// mark or `..`.
pub fn is_object_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        let has_ends = !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
        has_ends && label.bytes().all(is_inner)
    };
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("web-0", true)]
    #[case::subdomain("cinder.csi.openstack.org", true)]
    #[case::digits("0", true)]
    #[case::empty("", false)]
    #[case::upper_case("Web", false)]
    #[case::slash("n1/proxy/configz", false)]
    #[case::parent("n1/../../../../api/v1/secrets?x=", false)]
    #[case::dots("..", false)]
    #[case::query("n1?x", false)]
    #[case::percent("n1%2f", false)]
    #[case::leading_dash("-a", false)]
    #[case::dash_at_a_dot("a-.b", false)]
    #[case::line_break("a\n", false)]
    #[case::letter_of_another_alphabet("\u{430}", false)]
    fn object_names_are_dns_subdomains(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_object_name(name), expected);
    }

    #[test]
    fn rejects_too_long_name() {
        assert!(is_object_name(&"a".repeat(253)) && !is_object_name(&"a".repeat(254)));
    }
}
