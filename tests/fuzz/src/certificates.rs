// SPDX-License-Identifier: Apache-2.0
//! Certificates in a Secret. Checks that any PEM, and any DER in it, has an expiry or is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cinder_cloud::certificates::{end_of_bundle, ends};
use jiff::Timestamp;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "certificates",
    seeds: || {
        let certificates = [
            certificate(0x17, b"360101000000Z"),
            certificate(0x18, b"20510101000000Z"),
        ];
        let texts = certificates.iter().map(|der| pem(der).into_bytes());
        texts.chain(certificates.iter().cloned()).collect()
    },
    words: &[
        "-----BEGIN CERTIFICATE-----\n",
        "\n-----END CERTIFICATE-----\n",
        "\x30\x7f",
        "\x30\u{0}",
        "\x02\x01\x01",
        "\x05\u{0}",
        "\x17\x0d360101000000Z",
        "\x18\x0f99991231235959Z",
        "\x18\x1300010101000000.999Z",
        "0229",
        "9999",
        "+1459",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    check(&String::from_utf8_lossy(bytes));
    check(&pem(bytes));
}

fn check(text: &str) {
    let expiries = ends(text);
    assert!(
        expiries.len() <= text.matches("BEGIN").count(),
        "more ends than certificates"
    );
    let end = end_of_bundle(&expiries, Timestamp::UNIX_EPOCH);
    assert_eq!(end.is_some(), !expiries.is_empty());
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

fn der(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let content = parts.concat();
    // Short forms only: a seed has less than 128 bytes.
    let mut encoded = vec![tag, u8::try_from(content.len()).unwrap_or(0x7F)];
    encoded.extend(content);
    encoded
}

/// Returns a certificate without names and keys, with this encoding of its expiry.
fn certificate(time: u8, end: &[u8]) -> Vec<u8> {
    let (empty, start) = (der(0x30, &[]), der(0x17, &[b"200101000000Z".to_vec()]));
    let version = der(0xA0, &[der(0x02, &[vec![2]])]);
    let serial = der(0x02, &[vec![1]]);
    let validity = der(0x30, &[start, der(time, &[end.to_vec()])]);
    let body = [
        version,
        serial,
        empty.clone(),
        empty.clone(),
        validity,
        empty.clone(),
        empty.clone(),
    ];
    der(0x30, &[der(0x30, &body), empty, der(0x03, &[vec![0, 1]])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_certificates_have_an_expiry() {
        for seed in (TARGET.seeds)() {
            let text = String::from_utf8(seed.clone())
                .ok()
                .filter(|text| text.contains("BEGIN"));
            assert_eq!(ends(&text.unwrap_or_else(|| pem(&seed))).len(), 1);
        }
    }
}
