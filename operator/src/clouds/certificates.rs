//! When certificates end. Of a certificate only that is read.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::jiff::{Timestamp, civil::DateTime, tz::TimeZone};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Tags of DER.
mod tag {
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const GENERALIZED_TIME: u8 = 0x18;
}

/// The ends of all certificates in a text in PEM, in its order. What cannot be read is left out.
pub fn ends(pem: &str) -> Vec<Timestamp> {
    let blocks = pem.split(BEGIN).skip(1);
    blocks
        .filter_map(|block| {
            let (body, _) = block.split_once(END)?;
            let text: String = body.split_whitespace().collect();
            end(&BASE64_STANDARD.decode(text).ok()?)
        })
        .collect()
}

/// The end that matters of a bundle: the first among those to come, or the last one when all have passed. Bundles are known to
/// hold old certificates beside those that count.
pub fn end_of_bundle(ends: &[Timestamp], now: Timestamp) -> Option<Timestamp> {
    let to_come = ends.iter().filter(|end| **end > now).min();
    to_come.or_else(|| ends.iter().max()).copied()
}

/// Certificate → TBSCertificate → validity → notAfter.
fn end(der: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = expect(der, tag::SEQUENCE)?;
    let (mut rest, _) = expect(certificate, tag::SEQUENCE)?;
    if let Some((_, after)) = expect(rest, tag::VERSION) {
        rest = after;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (validity, _) = expect(rest, tag::SEQUENCE)?;
    let (_, _, not_after) = element(validity)?;
    let (kind, text, _) = element(not_after)?;
    moment(kind, std::str::from_utf8(text).ok()?)
}

/// UTCTime has two digits for the year, which mean 1950 to 2049.
fn moment(kind: u8, text: &str) -> Option<Timestamp> {
    let text = match kind {
        tag::GENERALIZED_TIME => text.to_owned(),
        tag::UTC_TIME => {
            let year: u8 = text.get(..2)?.parse().ok()?;
            format!("{}{text}", if year < 50 { "20" } else { "19" })
        }
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

fn expect(input: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (kind, content, rest) = element(input)?;
    (kind == wanted).then_some((content, rest))
}

/// Tag, content and what follows.
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = input.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let bytes = rest.get(..usize::from(first & 0x7f))?;
        rest = rest.get(bytes.len()..)?;
        let is_sane = (1..=4).contains(&bytes.len());
        is_sane.then(|| bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))?
    };
    Some((kind, rest.get(..length)?, rest.get(length..)?))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use rstest::rstest;

    use super::*;

    fn mk_pem(year: i32) -> String {
        let mut params = CertificateParams::new(vec!["keystone.example.org".to_owned()]).expect("params");
        params.not_after = date_time_ymd(year, 12, 1);
        let key = KeyPair::generate().expect("key");
        params.self_signed(&key).expect("certificate").pem()
    }

    fn day(year: i32) -> Timestamp {
        format!("{year}-12-01T00:00:00Z").parse().expect("a time")
    }

    #[rstest]
    #[case(2036)]
    #[case(2049)]
    #[case(2051)]
    fn the_end_of_a_certificate_is_read_in_both_ways_to_write_it(#[case] year: i32) {
        assert_eq!(ends(&mk_pem(year)), [day(year)]);
    }

    #[test]
    fn of_a_bundle_the_next_end_counts_and_not_what_has_passed_before() {
        let bundle = format!("some words\n{}\n{}{}", mk_pem(2020), mk_pem(2040), mk_pem(2038));
        let ends = ends(&bundle);
        assert_eq!(ends, [day(2020), day(2040), day(2038)]);
        assert_eq!(end_of_bundle(&ends, day(2026)), Some(day(2038)));
        assert_eq!(end_of_bundle(&ends, day(2045)), Some(day(2040)));
    }

    #[rstest]
    #[case("")]
    #[case("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----")]
    #[case("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----")]
    #[case("-----BEGIN CERTIFICATE-----\nMIT/////\n-----END CERTIFICATE-----")]
    #[case("-----BEGIN CERTIFICATE-----")]
    fn what_is_no_certificate_has_no_end(#[case] pem: &str) {
        assert!(ends(pem).is_empty());
    }
}
