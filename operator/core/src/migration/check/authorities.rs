// SPDX-License-Identifier: Apache-2.0
//! CA certificates, compared independently of their order and of text between them.

use std::collections::BTreeSet;

use crate::text::short_hash;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// Maximum number of certificates in one bundle.
const MOST_CERTIFICATES: usize = 2_000;

/// The certificates of a bundle, by their hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities(BTreeSet<String>);

impl Authorities {
    /// Reads a bundle in PEM.
    pub fn read(pem: &str) -> Self {
        let blocks = pem.split(BEGIN).skip(1).filter_map(|block| block.split_once(END));
        let hashes = blocks.take(MOST_CERTIFICATES).map(|(body, _)| {
            let body: String = body.split_whitespace().collect();
            short_hash(body, 32)
        });
        Self(hashes.collect())
    }

    /// Returns the number of certificates that another bundle lacks.
    pub(super) fn count_missing(&self, other: &Self) -> usize {
        self.0.difference(&other.0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_certificate(body: &str) -> String {
        format!("{BEGIN}\n{body}\n{END}\n")
    }

    #[test]
    fn bundles_are_equal_in_any_order_and_layout() {
        let one = format!("# root\n{}{}", mk_certificate("QUJD\nREVG"), mk_certificate("eHl6"));
        let other = format!("{}\n\n{}", mk_certificate("eHl6"), mk_certificate("QUJDREVG"));
        assert_eq!(Authorities::read(&one), Authorities::read(&other));
    }

    #[test]
    fn missing_certificates_are_counted() {
        let old = Authorities::read(&[mk_certificate("a"), mk_certificate("b")].concat());
        let new = Authorities::read(&[mk_certificate("b"), mk_certificate("c")].concat());
        assert_eq!(old.count_missing(&new), 1);
        assert_eq!(Authorities::read("no certificate").count_missing(&new), 0);
    }
}
