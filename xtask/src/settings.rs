// SPDX-License-Identifier: Apache-2.0
//! Generates the page of the driver's settings and the fields of the CinderCSIDriver that set them. Its tests check
//! that the table is complete.

use std::fmt::Write as _;
use std::sync::LazyLock;

use cinder_operator_core::templates::{self, Template};
use serde::Deserialize;

/// Every setting of the driver, in the order of the page.
static GROUPS: Template<Vec<Group>> = LazyLock::new(|| templates::read(include_str!("../settings.yaml")));

/// Settings in one section of the page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Group {
    title: String,
    settings: Vec<Setting>,
}

/// A flag, a parameter or a key. Exactly one of `fields`, `override` and `left_out` is present.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Setting {
    name: String,
    /// The fields that set it.
    #[serde(default)]
    fields: Vec<String>,
    /// The heading in docs/overrides.md above an example with it.
    r#override: Option<String>,
    /// The reason why no field sets it.
    left_out: Option<String>,
}

impl Setting {
    fn place(&self) -> String {
        if let Some(reason) = &self.left_out {
            return format!("not there: {reason}");
        }
        if let Some(heading) = &self.r#override {
            return format!("an [override](../overrides.md), under \"{heading}\"");
        }
        let fields: Vec<String> = self.fields.iter().map(|field| format!("`{field}`")).collect();
        fields.join(", ")
    }
}

/// Generates the page.
pub(crate) fn page(banner: &str) -> Result<String, serde_json::Error> {
    let mut page = format!(
        "{banner}# Settings of the driver\n\nEvery flag, class parameter and key of `cloud.conf` that the driver reads, and where a \
         CinderCSIDriver says it. [clouds.md](../clouds.md) and [nodes.md](../nodes.md) have what they mean.\n"
    );
    for group in templates::get(&GROUPS)? {
        let _ = write!(
            page,
            "\n## {}\n\n| setting | in a CinderCSIDriver |\n|---|---|\n",
            group.title
        );
        for setting in &group.settings {
            let _ = writeln!(page, "| `{}` | {} |", setting.name, setting.place());
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use cinder_cloud::Configuration;
    use cinder_cloud::config::keys::CLOUD_CONF;
    use cinder_csi_driver::args::Args;
    use cinder_csi_driver::parameters::ClassKind;
    use clap::CommandFactory as _;
    use serde_json::Value;

    use super::*;

    const OVERRIDES: &str = include_str!("../../docs/overrides.md");

    fn groups() -> &'static [Group] {
        templates::get(&GROUPS).expect("the table")
    }

    /// The settings that the driver reads, by the lower-case titles of the table.
    fn driver_settings() -> BTreeMap<String, BTreeSet<String>> {
        let command = Args::command();
        let flags = command.get_arguments().filter_map(|flag| flag.get_long());
        let flags = flags
            .filter(|name| !["help", "version"].contains(name))
            .map(str::to_owned);
        let mut all = BTreeMap::from([("flags".to_owned(), flags.collect())]);
        for kind in ClassKind::ALL {
            let prefixed = kind.prefix().map(|prefix| format!("{prefix}KEY"));
            let keys = kind.keys().iter().map(|&key| key.to_owned()).chain(prefixed);
            all.insert(
                format!("parameters of a {}", kind.as_str()).to_lowercase(),
                keys.collect(),
            );
        }
        for row in CLOUD_CONF {
            let section = row.place.section().unwrap_or_default().to_lowercase();
            let keys: &mut BTreeSet<String> = all.entry(format!("section [{section}] of cloud.conf")).or_default();
            keys.extend(row.names.iter().map(|&name| name.to_owned()));
        }
        all
    }

    #[test]
    fn table_has_exactly_the_settings_of_driver() {
        let table: BTreeMap<String, BTreeSet<String>> = groups()
            .iter()
            .map(|group| {
                let names: BTreeSet<String> = group.settings.iter().map(|setting| setting.name.clone()).collect();
                assert_eq!(
                    names.len(),
                    group.settings.len(),
                    "a setting of {} stands there twice",
                    group.title
                );
                (group.title.to_lowercase(), names)
            })
            .collect();

        assert_eq!(
            table,
            driver_settings(),
            "say in settings.yaml by which field, by which override, or why not"
        );
    }

    /// Whether the schema has a field. `[]` after a name selects the elements of a list.
    fn exists(schema: &Value, path: &str) -> bool {
        let mut schema = schema;
        for step in path.split('.') {
            let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
            schema = &schema["properties"][name];
            if is_list {
                schema = &schema["items"];
            }
        }
        schema.is_object()
    }

    /// The section of the page under this heading.
    fn section(heading: &str) -> Option<&'static str> {
        let mut sections = OVERRIDES.split("\n### ").skip(1);
        sections.find_map(|section| section.strip_prefix(heading)?.strip_prefix('\n'))
    }

    #[test]
    fn settings_have_field_or_example_or_reason() {
        let crd = serde_json::to_value(cinder_csi_crds::crd()).expect("JSON");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert!(!exists(schema, "spec.clouds[].nothing"));
        for setting in groups().iter().flat_map(|group| &group.settings) {
            match (&setting.fields[..], &setting.r#override, &setting.left_out) {
                ([], None, Some(reason)) => assert!(reason.len() > 8, "{setting:?}"),
                ([], Some(heading), None) => {
                    let section = section(heading).unwrap_or_else(|| panic!("no section for {setting:?}"));
                    let example = section
                        .split("\n## ")
                        .next()
                        .and_then(|section| section.split_once("```"));
                    let (_, example) = example.unwrap_or_else(|| panic!("no example for {setting:?}"));
                    assert!(
                        example.contains(&setting.name),
                        "the example does not name {}",
                        setting.name
                    );
                }
                (fields @ [_, ..], None, None) => {
                    // Every object has this field; Kubernetes defines its schema.
                    let of_spec = fields.iter().filter(|field| *field != "metadata.name");
                    let missing: Vec<_> = of_spec.filter(|field| !exists(schema, field)).collect();
                    assert!(missing.is_empty(), "{}: no field {missing:?}", setting.name);
                }
                _ => panic!("one of fields, override and leftOut is wanted: {setting:?}"),
            }
        }
    }

    #[test]
    fn cloud_conf_example_for_nodes_is_valid() {
        let section = section("cloud.conf: request-timeout of the metadata service").expect("the section");
        let text = section
            .split("```ini\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next())
            .expect("the file");

        let read = Configuration::from_cloud_conf(text, &[]).expect("good");

        let timeout = read.clouds[""].metadata.request_timeout;
        assert_eq!(timeout, Some(Duration::from_secs(15)));
    }
}
