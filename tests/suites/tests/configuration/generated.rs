// SPDX-License-Identifier: Apache-2.0
//! Generates configuration files from keys that the originals support, with a fixed pseudo-random sequence.

/// A `clouds.yaml` and the name of its cloud.
pub(crate) struct YamlFile {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) cloud: String,
    /// Whether gophercloud reads the whole login: it ignores keys outside `auth`, keys with a hyphen, and values of
    /// regions.
    pub(crate) is_plain: bool,
}

/// A `cloud.conf`, and the `clouds.yaml` that it may refer to as `/etc/config/clouds.yaml`.
pub(crate) struct ConfFile {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) yaml: String,
}

/// A deterministic sequence of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn new(seed: usize) -> Self {
        let mut dice = Self(0x9E37_79B9_7F4A_7C15 ^ (seed as u64 + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9));
        for _ in 0..8 {
            dice.next();
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let at = usize::try_from(self.next() % from.len() as u64).unwrap_or_default();
        from[at]
    }

    /// Selects lines, each with a probability of one in `count`.
    fn some<'a>(&mut self, from: &[&'a str], count: u64) -> Vec<&'a str> {
        from.iter().copied().filter(|_| self.one_in(count)).collect()
    }
}

/// Complete logins.
const LOGINS: &[&[&str]] = &[
    &["username: u", "password: p", "user_domain_id: d", "project_id: inner"],
    &[
        "username: u",
        "password: p",
        "user_domain_name: D",
        "project_name: pn",
        "project_domain_name: PD",
    ],
    &["username: u", "password: 1e5", "domain_id: d", "project_name: pn"],
    &[
        "username: u",
        "password: p",
        "user_domain_name: Users",
        "project_name: pn",
        "default_domain: default",
    ],
    &[
        "username: u",
        "password: p",
        "default_domain_id: dd",
        "project_name: pn",
    ],
    &["user_id: u", "password: p", "project_id: inner"],
    &["user-id: u", "password: '0123'", "tenant-id: inner"],
    &["application_credential_id: i", "application_credential_secret: s"],
    &[
        "application_credential_name: n",
        "application_credential_secret: s",
        "username: u",
        "user_domain_id: d",
    ],
    &["token: tok", "project_id: inner"],
    &["token: tok", "project_name: pn", "project-domain-name: PD"],
    &["user_id: u", "password: p", "trust_id: t"],
];

/// Additional keys of a login, in `auth` or outside of it.
const LOGIN_KEYS: &[&str] = &[
    "project_id: p2",
    "project-id: p3",
    "tenant_id: p4",
    "project_name: pn2",
    "tenant_name: pn3",
    "domain_id: d2",
    "domain_name: D2",
    "user_domain_id: d3",
    "user_domain_name: D3",
    "project_domain_id: d4",
    "project_domain_name: D4",
    "default_domain_name: D5",
    "username: u2",
    "user_name: u3",
    "user_id: u4",
    "password: p5",
    "token: tok2",
    "auth_token: tok3",
    "application_credential_id: i2",
    "application_credential_secret: s2",
    "system_scope: all",
    "password: 0x1F",
    "project_id: ''",
];

const CLOUD_KEYS: &[&str] = &[
    "region_name: R",
    "region-name: R2",
    "region_name: 'A,B'",
    "region_name: 12",
    "regions: [B, A]",
    "regions: [{name: B, values: {interface: internal, auth: {auth_url: 'https://b/v3', project_id: pb}}}, A]",
    "regions: [{name: C, values: {project_id: pc, endpoint_type: admin}}]",
    "interface: internal",
    "interface: admin",
    "interface: [admin]",
    "endpoint_type: internalURL",
    "endpoint_type: admin",
    "endpoint-type: admin",
    "volume_interface: admin",
    "block_storage_endpoint_type: internal",
    "compute_interface: internal",
    "volume_region_name: V",
    "block-storage-region-name: W",
    "compute_region_name: S",
    "volume_endpoint_override: https://cinder/v3",
    "volumev3_endpoint_override: https://cinder3/v3",
    "block_storage_endpoint: https://cinder4/v3",
    "compute-endpoint-override: https://nova/v2.1",
    "compute_endpoint: https://nova2/v2.1",
    "image_endpoint_override: https://glance",
    "volume_api_version: 3",
    "identity_api_version: '3'",
    "cacert: /ca.pem",
    "cert: /c.pem",
    "key: /k.pem",
    "verify: false",
    "verify: off",
    "verify: true",
    "verify: yes",
    "verify: /other.pem",
    "verify: 'false'",
    "insecure: true",
    "insecure: false",
    "auth_type: password",
    "auth_type: v3password",
    "auth_type: token",
    "auth_type: v3token",
    "auth_type: v3applicationcredential",
    "auth-type: token",
    "auth_plugin: password",
    "<<: *base",
    "networks: []",
    "shoe_size: 42",
];

fn name_of(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

/// Adds lines with new keys.
fn add<'a>(lines: &mut Vec<&'a str>, more: impl IntoIterator<Item = &'a str>) {
    for line in more {
        if lines.iter().all(|known| name_of(known) != name_of(line)) {
            lines.push(line);
        }
    }
}

pub(crate) fn yaml_files(count: usize) -> Vec<YamlFile> {
    (0..count).map(yaml_file).collect()
}

fn yaml_file(number: usize) -> YamlFile {
    let mut dice = Dice::new(number);
    let mut auth = vec!["auth_url: https://k/v3"];
    let mut cloud = Vec::new();
    let at = usize::try_from(dice.next() % LOGINS.len() as u64).unwrap_or_default();
    for line in LOGINS[at] {
        if dice.one_in(8) {
            cloud.push(*line);
        } else {
            auth.push(*line);
        }
    }
    let (in_auth, beside) = (dice.some(LOGIN_KEYS, 24), dice.some(LOGIN_KEYS, 40));
    add(&mut auth, in_auth);
    add(&mut cloud, beside);
    let is_plain = cloud.is_empty() && !auth.iter().any(|line| name_of(line).contains('-'));
    let more = dice.some(CLOUD_KEYS, 16);
    add(&mut cloud, more);
    let is_plain = is_plain && !cloud.iter().any(|line| line.contains("values"));
    let mut text = "base: &base {region_name: R9, interface: admin, verify: no}\nclouds:\n  c:\n".to_owned();
    for line in cloud {
        text.extend(["    ", line, "\n"]);
    }
    text.push_str("    auth:\n");
    for line in auth {
        text.extend(["      ", line, "\n"]);
    }
    YamlFile {
        name: format!("generated {number}"),
        text,
        cloud: "c".to_owned(),
        is_plain,
    }
}

const CONF_LOGINS: &[&[&str]] = &[
    &["username=u", "password=p", "user-domain-id=d", "tenant-id=t"],
    &["username=u", "password=\"p;#\"", "domain-name=D", "tenant-name=tn"],
    &["user-id=u", "password=p", "tenant-name=tn", "tenant-domain-name=TD"],
    &["application-credential-id=i", "application-credential-secret=s"],
    &[
        "application-credential-name=n",
        "application-credential-secret=s",
        "username=u",
        "user-domain-name=D",
    ],
    &["token=tok", "tenant-id=t"],
    &["trust-id=tr", "trustee-id=te", "trustee-password=tp"],
    &["trust-id=tr", "user-id=u", "password=p"],
    &["use-clouds=true", "clouds-file=/etc/config/clouds.yaml", "cloud=a"],
    &["use-clouds=true", "clouds-file=/etc/config/clouds.yaml", "cloud=b"],
    &["use-clouds=yes", "clouds-file=/etc/config/clouds.yaml"],
];

const CONF_KEYS: &[&str] = &[
    "username=u2",
    "user-id=u3",
    "password=p2",
    "tenant-id=t2",
    "tenant-name=tn2",
    "domain-id=d2",
    "domain-name=D2",
    "user-domain-id=d3",
    "user-domain-name=D3",
    "tenant-domain-id=d4",
    "tenant-domain-name=D4",
    "token=tok2",
    "trust-id=tr2",
    "trustee-id=te2",
    "trustee-password=tp2",
    "application-credential-id=i2",
    "application-credential-name=n2",
    "application-credential-secret=s2",
    "auth-url=https://other:5000/v3",
    "cloud=a",
    "region=R",
    "region=",
    "os-endpoint-type=internal",
    "os-endpoint-type=internalURL",
    "ca-file=/ca.pem",
    "CAFileContents=PEM",
    "tls-insecure=true",
    "tls-insecure=false",
    "tls-insecure=yes",
    "tls-insecure=1",
    "tls-insecure=True",
    "tls-insecure=",
    "tls-insecure",
    "cert-file=/c.pem",
    "key-file=/k.pem",
    "use-clouds=false",
    "user_domain_id=d9",
    "shoe-size=42",
    "password",
];

const CONF_OPTIONS: &[&str] = &[
    "[BlockStorage]\nnode-volume-attach-limit=20",
    "[BlockStorage]\nnode-volume-attach-limit=500",
    "[BlockStorage]\nnode-volume-attach-limit=0",
    "[BlockStorage]\nnode-volume-attach-limit=-3",
    "[BlockStorage]\nnode-volume-attach-limit=0x10",
    "[BlockStorage]\nnode-volume-attach-limit=010",
    "[BlockStorage]\nnode-volume-attach-limit=many",
    "[BlockStorage]\nrescan-on-resize",
    "[BlockStorage]\nrescan-on-resize=On",
    "[BlockStorage]\nrescan-on-resize=t",
    "[BlockStorage]\nignore-volume-az=1",
    "[BlockStorage]\nignore-volume-az=no",
    "[BlockStorage]\nignore-volume-microversion=TRUE",
    "[BlockStorage]\nbs-version=v3",
    "[Metadata]\nsearch-order=metadataService",
    "[Metadata]\nsearch-order=metadataService, configDrive",
    "[Metadata]\nrequest-timeout=5s",
    "[Metadata]\nrequest-timeout=1m0.5s",
    "[Metadata]\nrequest-timeout=5",
    "[LoadBalancer]\nenabled=false",
    "[Garden]\nflowers=3",
];

/// Entries for `use-clouds`, with keys that openstacksdk and gophercloud read differently.
const YAML_OF_CONF: &[&str] = &[
    "clouds: {a: {region_name: R, auth: {auth_url: 'https://k/v3', username: u, password: p, project_id: MINE, user_domain_id: d}}, b: \
     {verify: false, endpoint_type: admin, interface: internal, auth: {auth_url: 'https://k/v3', user_id: u, password: p, project_id: MINE}}}",
    "clouds: {a: {auth_type: v3token, project_id: outer, region-name: R, auth: {auth_url: 'https://k/v3', token: tok, project_id: MINE, \
     password: p, username: u}}, b: {regions: [B, A], cacert: /y.pem, cert: /yc.pem, key: /yk.pem, auth: {auth_url: 'https://k/v3', \
     application_credential_id: i, application_credential_secret: s, project_id: x}}}",
    "clouds: {a: {auth: {auth_url: 'https://k/v3', username: u, password: p, user_domain_name: Users, project_name: pn, default_domain: \
     default}}}",
    "clouds: {a: {auth_type: v3applicationcredential, auth: {auth_url: 'https://k/v3', user_id: u, password: p, project_id: t, \
     application_credential_id: i, application_credential_secret: s}}}",
];

pub(crate) fn conf_files(count: usize) -> Vec<ConfFile> {
    (0..count).map(conf_file).collect()
}

fn conf_file(number: usize) -> ConfFile {
    let mut dice = Dice::new(number + 1_000_000);
    let at = usize::try_from(dice.next() % CONF_LOGINS.len() as u64).unwrap_or_default();
    let mut lines = CONF_LOGINS[at].to_vec();
    let needs_address = !lines[0].starts_with("use-clouds");
    lines.extend(dice.some(CONF_KEYS, 28));
    let options = dice.some(CONF_OPTIONS, 10);
    let address = if needs_address { "auth-url=https://k/v3\n" } else { "" };
    ConfFile {
        name: format!("generated {number}"),
        text: format!("[Global]\n{address}{}\n{}\n", lines.join("\n"), options.join("\n")),
        yaml: dice.pick(YAML_OF_CONF).to_owned(),
    }
}

/// Flags with several values, and their values on one command line.
pub(crate) fn flags() -> Vec<(&'static str, Vec<&'static str>)> {
    let names = [
        "region-one",
        "\"region-one\"",
        "a,b",
        "\"a,b\",c",
        "\"a\"\"b\"",
        "a\"b",
        "\"a",
        "\"a\"b",
        " a",
        "a,",
        ",a",
        "a=b",
        "'a'",
    ];
    let pairs = [
        "a=b",
        "\"a=b\"",
        "a=b,c=d",
        "\"a=b\",\"c=d,e\"",
        "a=b,c",
        "a=b=c",
        "a=",
        "topology.kubernetes.io/region=\"west\"",
        "a",
    ];
    let mut all: Vec<(&str, Vec<&str>)> = names.iter().map(|name| ("cloud-name", vec![*name])).collect();
    all.push(("cloud-name", vec!["a,b", "\"c\""]));
    all.extend(pairs.iter().map(|pair| ("additional-topology", vec![*pair])));
    all.push(("additional-topology", vec!["a=b", "\"a=c\""]));
    all
}
