// SPDX-License-Identifier: Apache-2.0
//! `clouds.yaml`. Checks that any text is accepted or refused, and that an accepted configuration survives a round trip through
//! `cloud.conf`.

use cinder_cloud::CloudConfig;

use crate::cloud_conf::check_written;
use crate::{Target, texts};

pub(crate) const TARGET: Target = Target {
    name: "clouds-yaml",
    seeds: || {
        texts(&[
            "clouds:\n  openstack:\n    auth:\n      auth_url: https://k/v3\n      username: u\n      password: 'p\"\\ w'\n      project_name: t\n      user_domain_name: Default\n      project_domain_id: d\n    region_name: R\n    interface: internal\n",
            "clouds:\n  a: {auth: {auth_url: 'https://k', application_credential_id: i, application_credential_secret: s}, auth_type: v3applicationcredential, verify: false}\n  b: &b {auth: {auth_url: http://w, token: t, project_id: p}}\n",
            "x: &x\n  auth_url: https://k\n  trust_id: t\nclouds:\n  openstack:\n    auth:\n      <<: *x\n      user_id: u\n      password: p\n    cacert: /c\n    cert: /e\n    key: /k\n    networks: []\n",
        ])
    },
    words: &[
        "clouds:\n",
        "  openstack:\n",
        "    auth:\n",
        "      auth_url: https://k\n",
        "      password: p\n",
        "verify: false\n",
        "<<: *x\n",
        "&x ",
        "*x",
        "*x, *x, *x, *x",
        "[",
        "]",
        "{",
        "}",
        "- ",
        ": ",
        "? ",
        "|\n",
        ">-\n",
        "!!binary ",
        "!tag ",
        "'",
        "\"",
        "\\u0000",
        "~",
        "0x7F",
        "1e999",
        "---\n",
        "%YAML 1.1\n",
        "ü",
        "\u{feff}",
    ],
    eat,
};

fn eat(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for cloud in ["", "openstack"] {
        if let Ok(config) = CloudConfig::from_clouds_yaml(text, cloud) {
            check_written(&config);
        }
    }
}
