// SPDX-License-Identifier: Apache-2.0
//! The validity of certificates.

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use yasna::{ASN1Result, BERReader, Tag, tags::TAG_UTCTIME};

/// Returns the expiries of all certificates in a text in PEM, in its order. Skips invalid ones.
pub fn ends(pem: &str) -> Vec<Timestamp> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    certificates.filter_map(|certificate| end(&certificate.ok()?)).collect()
}

/// Returns the next expiry of a bundle, or the last one if all certificates have expired. Some bundles contain expired certificates
/// next to valid ones.
pub fn end_of_bundle(ends: &[Timestamp], now: Timestamp) -> Option<Timestamp> {
    let to_come = ends.iter().filter(|end| **end > now).min();
    to_come.or_else(|| ends.iter().max()).copied()
}

fn end(der: &[u8]) -> Option<Timestamp> {
    validity(der).map(|(_, end)| end)
}

/// Returns the first and the last moment of a certificate: Certificate → TBSCertificate → validity.
pub(crate) fn validity(der: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let seconds = yasna::parse_der(der, |certificate| {
        certificate.read_sequence(|parts| {
            let validity = parts.next().read_sequence(|body| {
                body.read_optional(|version| version.read_tagged(Tag::context(0), skip))?;
                // Serial number, algorithm, issuer.
                for _ in 0..3 {
                    skip(body.next())?;
                }
                let validity = body
                    .next()
                    .read_sequence(|validity| Ok((time(validity.next())?, time(validity.next())?)))?;
                while body.read_optional(skip)?.is_some() {}
                Ok(validity)
            })?;
            while parts.read_optional(skip)?.is_some() {}
            Ok(validity)
        })
    });
    let (begin, end) = seconds.ok()?;
    Some((Timestamp::from_second(begin).ok()?, Timestamp::from_second(end).ok()?))
}

fn skip(reader: BERReader<'_, '_>) -> ASN1Result<()> {
    reader.read_der().map(drop)
}

/// Reads a UTCTime, for years up to 2049, or a GeneralizedTime.
fn time(reader: BERReader<'_, '_>) -> ASN1Result<i64> {
    if reader.lookahead_tag()? == TAG_UTCTIME {
        return Ok(reader.read_utctime()?.datetime().unix_timestamp());
    }
    Ok(reader.read_generalized_time()?.datetime().unix_timestamp())
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
    fn expiry_is_read_in_both_encodings(#[case] year: i32) {
        assert_eq!(ends(&mk_pem(year)), [day(year)]);
    }

    #[test]
    fn expired_certificates_of_a_bundle_do_not_count() {
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
    fn invalid_certificates_have_no_expiry(#[case] pem: &str) {
        assert!(ends(pem).is_empty());
    }
}
