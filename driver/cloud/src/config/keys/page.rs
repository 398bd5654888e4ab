// SPDX-License-Identifier: Apache-2.0
//! The reference page of the keys. The test fails if the page differs from the tables. `UPDATE_PAGES=1` writes the page.

use std::fmt::Write as _;
use std::path::Path;

use super::*;

const PAGE: &str = "docs/reference/configuration-keys.md";

const HEAD: &str = "<!-- Made from the code: UPDATE_PAGES=1 cargo test -p cinder-cloud --lib keys::page. -->

# Keys of cloud.conf and clouds.yaml

Every key that the driver and the operator read, with its type and its effect. A `cloud.conf` means what it means to the Go driver, and a
`clouds.yaml` what openstacksdk makes of it; with `use-clouds` the keys that the Go driver reads count. [clouds.md](../clouds.md#how-files-are-read)
has the rules.

A key that is in no table has no effect. The log, condition `CredentialsValid` and each error about the file name it.
";

#[test]
fn reference_page_matches_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = page();
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "{PAGE} is out of date; its first line has the command");
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for place in [
        KeyPlace::Global,
        KeyPlace::BlockStorage,
        KeyPlace::Topology,
        KeyPlace::Metadata,
    ] {
        let section = place.section().unwrap_or_default();
        let _ = write!(
            page,
            "\n## Section [{section}] of cloud.conf\n\n| key | type | effect |\n|---|---|---|\n"
        );
        for row in CLOUD_CONF.iter().filter(|row| row.place == place) {
            let _ = writeln!(
                page,
                "| {} | {} | {} |",
                names(row),
                row.kind.description(),
                effect(row)
            );
        }
    }
    page.push_str(
        "\n## Login of a cloud in clouds.yaml\n\nIn the mapping `auth` or beside it. `-` may stand for `_`.\n\n\
         | key | type | counts | read with use-clouds | effect |\n|---|---|---|---|---|\n",
    );
    for row in CLOUDS_YAML.iter().filter(|row| row.place == KeyPlace::Login) {
        let precedence = match row.precedence {
            Precedence::OutsideAuth => "beside `auth` first",
            Precedence::InsideAuth => "in `auth` first",
            Precedence::Last | Precedence::Own => "-",
        };
        let (kind, go) = (row.kind.description(), go_names(row));
        let _ = writeln!(
            page,
            "| {} | {kind} | {precedence} | {go} | {} |",
            names(row),
            effect(row)
        );
    }
    page.push_str(
        "\n## Other keys of a cloud in clouds.yaml\n\nBeside `auth`, and in `values` of an entry of `regions`. `-` may stand for `_`, except in \
         `auth_type` and in names that end with `endpoint_type`.\n\n| key | type | read with use-clouds | effect |\n|---|---|---|---|\n",
    );
    for row in CLOUDS_YAML.iter().filter(|row| row.place == KeyPlace::Cloud) {
        let (kind, go) = (row.kind.description(), go_names(row));
        let _ = writeln!(page, "| {} | {kind} | {go} | {} |", names(row), effect(row));
    }
    page.push_str(
        "\nKeys that begin with the name of another service, such as `image_` or `identity_`, are skipped. So are versions and retries of block \
         storage and compute, such as `volume_api_version`.\n",
    );
    page
}

/// The names, the strongest first.
fn names(row: &ConfigKey) -> String {
    let names: Vec<String> = row.names.iter().rev().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn go_names(row: &ConfigKey) -> String {
    if row.is_own() {
        return "yes".to_owned();
    }
    match row.go_names {
        [] => "no".to_owned(),
        all if all.len() == row.names.len() => "yes".to_owned(),
        some => some
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn effect(row: &ConfigKey) -> String {
    match row.effect {
        KeyEffect::Used if row.is_own() => "used; an extension of this driver".to_owned(),
        KeyEffect::Used => "used".to_owned(),
        KeyEffect::OtherService => "skipped: about another service or program".to_owned(),
        KeyEffect::Obsolete(reason) => format!("none: {reason}"),
        KeyEffect::Refused(remedy) if matches!(row.kind, KeyKind::OneOf(_)) => {
            format!("other values are refused: {remedy}")
        }
        KeyEffect::Refused(remedy) => format!("refused: {remedy}"),
    }
}
