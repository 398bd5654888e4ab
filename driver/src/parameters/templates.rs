// SPDX-License-Identifier: Apache-2.0
//! Templates for the metadata of new volumes: `${pvc.namespace}/${pvc.name}`.

use std::collections::BTreeMap;

use super::mutable::check_metadata;

/// The permitted variables of a template.
const VARIABLES: [&str; 4] = ["pvc.name", "pvc.namespace", "pv.name", "cluster"];

/// The values of the variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Values<'a> {
    pub(super) pvc_name: Option<&'a str>,
    pub(super) pvc_namespace: Option<&'a str>,
    pub(super) pv_name: Option<&'a str>,
    pub(super) cluster: &'a str,
}

impl Values<'_> {
    fn get(&self, variable: &str) -> Result<&str, String> {
        let value = match variable {
            "pvc.name" => self.pvc_name,
            "pvc.namespace" => self.pvc_namespace,
            "pv.name" => self.pv_name,
            "cluster" => Some(self.cluster),
            _ => {
                return Err(format!(
                    "${{{variable}}} is not known; there are {}",
                    VARIABLES.map(|name| format!("${{{name}}}")).join(", ")
                ));
            }
        };
        value.ok_or_else(|| format!("${{{variable}}} has no value; give csi-provisioner --extra-create-metadata"))
    }
}

/// Expands templates, and checks the keys and Cinder's length limits.
pub(super) fn fill(
    templates: &BTreeMap<String, String>,
    values: &Values<'_>,
) -> Result<BTreeMap<String, String>, String> {
    let filled = templates.iter().map(|(key, template)| {
        let value = expand(template, values).map_err(|reason| format!("metadata {key}: {reason}"))?;
        check_metadata(key, &value)?;
        Ok((key.clone(), value))
    });
    filled.collect()
}

/// Validates templates at the start of the process, as if every variable had a value.
pub fn check_templates(templates: &[(String, String)]) -> Result<(), String> {
    let templates = templates.iter().cloned().collect();
    let values = Values {
        pvc_name: Some(""),
        pvc_namespace: Some(""),
        pv_name: Some(""),
        cluster: "",
    };
    fill(&templates, &values).map(drop)
}

fn expand(template: &str, values: &Values<'_>) -> Result<String, String> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after.split_once('}').ok_or_else(|| "${ has no closing }".to_owned())?;
        text.push_str(before);
        text.push_str(values.get(variable)?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const VALUES: Values<'_> = Values {
        pvc_name: Some("data"),
        pvc_namespace: Some("shop"),
        pv_name: None,
        cluster: "k1",
    };

    fn filled(key: &str, template: &str) -> Result<BTreeMap<String, String>, String> {
        fill(&BTreeMap::from([(key.to_owned(), template.to_owned())]), &VALUES)
    }

    // kubernetes/cloud-provider-openstack#3087, #914
    #[rstest]
    #[case("${pvc.namespace}/${pvc.name} in ${cluster}", "shop/data in k1")]
    #[case("$5 {a} $", "$5 {a} $")]
    #[case("", "")]
    fn templates_are_expanded_issue_3087_issue_914(#[case] template: &str, #[case] value: &str) {
        assert_eq!(filled("owner", template).expect("good")["owner"], value);
    }

    #[rstest]
    #[case("owner", "${pvc.nmae}", "${pvc.nmae} is not known; there are ${pvc.name}")]
    #[case("owner", "${pv.name}", "--extra-create-metadata")]
    #[case("owner", "${pvc.name", "no closing }")]
    #[case("cinder.csi.openstack.org/cluster", "x", "cannot be set")]
    #[case("readonly", "x", "cannot be set")]
    #[case("", "x", "names no key")]
    fn invalid_template_is_refused_with_remedy(#[case] key: &str, #[case] template: &str, #[case] expected: &str) {
        let refusal = filled(key, template).expect_err("bad");
        assert!(refusal.contains(expected), "{refusal}");
    }

    #[test]
    fn too_long_value_is_refused_not_truncated() {
        let long = "x".repeat(256 - VALUES.cluster.len());
        let refusal = filled("owner", &format!("{long}${{cluster}}")).expect_err("too long");
        assert!(refusal.contains("256 characters, and 255 are allowed"), "{refusal}");
        assert!(filled("owner", &format!("{}${{cluster}}", &long[1..])).is_ok());
    }

    proptest! {
        #[test]
        fn text_without_variables_is_unchanged(text in "[^$]{0,80}") {
            prop_assert_eq!(expand(&text, &VALUES), Ok(text));
        }

        #[test]
        fn any_template_expands_without_panic(text in "[$a-z{}.]{0,40}") {
            drop(expand(&text, &VALUES));
        }
    }
}
