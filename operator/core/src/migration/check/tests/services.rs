// SPDX-License-Identifier: Apache-2.0

use super::*;

const OLD: &str = "[Global]\nauth-url=https://k\nregion=R1\nos-endpoint-type=internal\n";

fn mk_yaml_spec() -> CinderCSIDriverSpec {
    CinderCSIDriverSpec::new(vec![Cloud::from_secret("openstack-credentials")])
}

fn mk_yaml(keys: &str) -> String {
    format!(
        "clouds: {{openstack: {{{keys}, auth: {{auth_url: 'https://k', application_credential_id: i, application_credential_secret: s}}}}}}"
    )
}

#[rstest]
#[case::nothing_of_its_own("region_name: R1, interface: internal", &[])]
#[case::same_values(
    "region_name: R1, interface: internal, compute_region_name: R1, volume_interface: internal, compute_interface: internal", &[])]
#[case::address_of_cinder(
    "region_name: R1, interface: internal, volume_endpoint_override: 'https://c/v3'",
    &["block_storage_endpoint_override of clouds.yaml"])]
#[case::address_of_nova(
    "region_name: R1, interface: internal, compute_endpoint_override: 'https://n'", &["compute_endpoint_override of clouds.yaml"])]
#[case::region_of_cinder("region_name: R1, interface: internal, volume_region_name: R2", &["[Global] region"])]
#[case::region_of_nova(
    "region_name: R1, interface: internal, compute_region_name: R2", &["compute_region_name of clouds.yaml"])]
#[case::interface_of_cinder(
    "region_name: R1, interface: internal, block_storage_interface: public", &["block_storage_interface of clouds.yaml"])]
#[case::interface_of_nova(
    "region_name: R1, interface: internal, compute_interface: admin", &["compute_interface of clouds.yaml"])]
#[case::interface_of_each("region_name: R1, volume_interface: internal, compute_interface: internal", &[])]
#[case::interface_of_one("region_name: R1, volume_interface: internal", &["[Global] os-endpoint-type"])]
fn services_are_compared_by_effective_values(#[case] keys: &str, #[case] expected: &[&str]) {
    let found = compare(&mk_yaml_spec(), mk_configuration(&[], OLD), Some(&mk_yaml(keys)));
    let subjects: Vec<&str> = found.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(subjects, expected, "{found:?}");
}

#[test]
fn address_of_service_is_compared_with_catalogue() {
    let keys = "region_name: R1, interface: internal, volume_endpoint_override: 'https://c/v3/'";
    let found = compare(&mk_yaml_spec(), mk_configuration(&[], OLD), Some(&mk_yaml(keys)));
    assert!(
        found[0]
            .message
            .contains("uses the address in the catalogue, and this driver \"https://c/v3\""),
        "{found:?}"
    );
    assert!(
        found[0]
            .remedy
            .starts_with("Remove block_storage_endpoint_override of clouds.yaml from"),
        "{found:?}"
    );
    // This driver in place of cinder-csi-plugin reads these keys too.
    let old = format!("{OLD}block-storage-endpoint-override=https://C/v3\n");
    assert_eq!(
        compare(&mk_yaml_spec(), mk_configuration(&[], &old), Some(&mk_yaml(keys))),
        []
    );
    let found = compare(
        &mk_yaml_spec(),
        mk_configuration(&[], &old),
        Some(&mk_yaml("region_name: R1, interface: internal")),
    );
    assert_eq!(found[0].subject, "[Global] block-storage-endpoint-override");
    assert!(found[0].remedy.starts_with("Write the key"), "{found:?}");
}

#[test]
fn services_of_unread_credentials_are_unknown() {
    assert_eq!(compare(&mk_yaml_spec(), mk_configuration(&[], OLD), None), []);
}
