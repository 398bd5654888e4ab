// SPDX-License-Identifier: Apache-2.0
//! `cloud.conf`. Checks that any bytes are accepted or refused, and that an accepted configuration survives a round
//! trip.

use cinder_cloud::{CloudConfig, Configuration};

use crate::{Target, texts};

const SEEDS: &[&str] = &[
    "[Global]\nauth-url = https://k\nusername = u\npassword = \"p;#\\\"\\\\ w\"\ntenant-name = t\ndomain-name = Default\nregion = R\n",
    "[Global \"west\"]\nauth-url=https://w\napplication-credential-id=i\napplication-credential-secret=s\n[BlockStorage \"west\"]\nignore-volume-az\n[Topology \"west\"]\nzone-map = a b = c\nsegment = k=v\n",
    "; comment\r\n[Global]\r\nauth-url=http://k\\\r\n/v3 ; more\r\ntrust-id=t\r\ntrustee-id=u\r\ntrustee-password=p\r\ncert-file=/c\r\nkey-file=/k\r\n",
    "\u{feff}[Metadata]\nsearch-order = metadataService\nrequest-timeout = 1m0.5s\n[Global]\ntoken=t\ntenant-id=p\nauth-url=https://k\n[LoadBalancer]\nenabled=false\n",
];

pub(crate) const TARGET: Target = Target {
    name: "cloud-conf",
    seeds: || texts(SEEDS),
    words: &[
        "[Global]\n",
        "[Global \"",
        "\"]\n",
        "[BlockStorage]\n",
        "[Topology]\n",
        "zone-map = ",
        "segment = ",
        "=",
        " = ",
        "\\\n",
        "\\\"",
        "\"",
        "\\n",
        "\n",
        "\r\n",
        ";",
        "#",
        "true",
        "request-timeout = ",
        "1h2m3s",
        "99999999999999999999h",
        "node-volume-attach-limit = ",
        "4294967296",
        "-1",
        "auth-url = https://k\n",
        "password = ",
        "token = ",
        "\u{0}",
        "ü",
        "\u{feff}",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for names in [&[][..], &["west".to_owned()]] {
        let Ok(configuration) = Configuration::from_cloud_conf(text, names) else {
            continue;
        };
        configuration.clouds.values().for_each(check_written);
    }
}

/// Panics unless the configuration is unchanged after it was written and parsed again.
pub(crate) fn check_written(config: &CloudConfig) {
    let written = config.to_cloud_conf(None);
    // The format cannot represent a carriage return in a value.
    if written.contains('\r') {
        return;
    }
    let again = Configuration::from_cloud_conf(&written, &[]);
    let again = again.map(|again| {
        again
            .clouds
            .values()
            .map(|config| config.to_cloud_conf(None))
            .collect::<String>()
    });
    assert!(
        again.as_ref().is_ok_and(|again| *again == written),
        "what was written reads as something else: {again:?}"
    );
}
