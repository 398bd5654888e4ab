// SPDX-License-Identifier: Apache-2.0
//! Addresses without the credentials that they may contain.

/// Returns an address without user information, query, fragment, default port and trailing slashes. It serves for
/// comparisons and for messages.
pub(super) fn bare_address(url: &str) -> String {
    let is_scheme = |text: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        !text.is_empty() && text.bytes().all(is_allowed)
    };
    let split = url.trim().split_once("://").filter(|(scheme, _)| is_scheme(scheme));
    let (scheme, rest) = split.unwrap_or(("", url.trim()));
    // A password may contain any character, so that the last @ ends it.
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = (scheme.to_lowercase(), rest.trim_start_matches(['/', '\\']));
    let (host, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => "",
    };
    let host = host.to_lowercase();
    let host = host.strip_suffix(port).unwrap_or(&host);
    let path = path.trim_end_matches('/');
    if scheme.is_empty() {
        return format!("{host}{path}");
    }
    format!("{scheme}://{host}{path}")
}

/// Returns the address of Keystone without the suffix for its version.
pub(super) fn bare_keystone(url: &str) -> String {
    let address = bare_address(url);
    let address = address.strip_suffix("/v3").unwrap_or(&address);
    address.trim_end_matches('/').to_owned()
}

/// Returns a text without the user information of addresses in it.
pub(super) fn without_users(text: &str) -> String {
    let parts = text.split_once("://").and_then(|(before, rest)| {
        let (_, after) = rest.rsplit_once('@')?;
        Some(format!("{before}://...@{after}"))
    });
    parts.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://K.example.org/v3/", "https://k.example.org")]
    #[case("https://k:443/v3", "https://k")]
    #[case("HTTP://k:80", "http://k")]
    #[case("https://k:5000/identity/v3", "https://k:5000/identity")]
    #[case("k:5000", "k:5000")]
    fn addresses_of_keystone_have_one_spelling(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(bare_keystone(url), expected);
    }

    #[rstest]
    #[case("https://user:hunter2@k/v3")]
    #[case("https:///user:hunter2@k")]
    #[case("https://user:hun/ter?2#hunter2@k")]
    #[case("https:\\\\user:hunter2@k")]
    #[case("user:hunter2@k")]
    #[case("user:hunter2@k://x")]
    #[case("https://k?password=hunter2")]
    #[case("https://k/p#hunter2")]
    fn addresses_have_no_credentials(#[case] url: &str) {
        assert!(!bare_address(url).contains("hunter2"), "{}", bare_address(url));
    }

    #[rstest]
    #[case("https://u:hunter2@api:6443", "https://...@api:6443")]
    #[case("a=https://u:hunter2@h,http://v:hunter2@k/x", "a=https://...@k/x")]
    #[case("u@h", "u@h")]
    fn texts_have_no_credentials_of_addresses(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(without_users(text), expected);
    }
}
