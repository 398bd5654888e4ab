// SPDX-License-Identifier: Apache-2.0
//! Keys of a `clouds.yaml` that start with the name of a service.

/// The services of the service-types authority with their aliases, without the services that the driver uses.
const OTHER_SERVICES: &[&str] = &[
    "accelerator",
    "admin_logic",
    "alarm",
    "alarming",
    "application_catalog",
    "application_container",
    "application_deployment",
    "backup",
    "bare_metal",
    "baremetal",
    "baremetal_introspection",
    "cluster",
    "clustering",
    "container",
    "container_infra",
    "container_infrastructure",
    "container_infrastructure_management",
    "data_processing",
    "data_protection_orchestration",
    "database",
    "dns",
    "ec2_api",
    "event",
    "events",
    "function_engine",
    "ha",
    "identity",
    "image",
    "infra_optim",
    "instance_ha",
    "key_manager",
    "load_balancer",
    "log_management",
    "message",
    "messaging",
    "meter",
    "metering",
    "monitoring",
    "monitoring_events",
    "monitoring_log_api",
    "monitoring_logging",
    "multi_region_network_automation",
    "network",
    "nfv_orchestration",
    "object_store",
    "operator_policy",
    "orchestration",
    "placement",
    "policy",
    "rating",
    "rca",
    "registration",
    "reservation",
    "resource_cluster",
    "resource_optimization",
    "root_cause_analysis",
    "search",
    "share",
    "shared_file_system",
    "sharev2",
    "telemetry",
    "tricircle",
    "workflow",
    "workflowv2",
];

/// The services that the driver uses.
const OWN_SERVICES: &[&str] = &[
    "block_storage",
    "block_store",
    "volume",
    "volumev2",
    "volumev3",
    "compute",
];

/// Options of a service that do not change the destination of its requests. The driver has versions and retries of
/// its own.
const HARMLESS: &[&str] = &[
    "api_version",
    "connect_retries",
    "connect_retry_delay",
    "default_microversion",
    "max_version",
    "min_version",
    "status_code_retries",
    "timeout",
];

/// Whether a key belongs to another service, or to versions and retries, for which the driver has its own.
pub(in crate::config) fn is_of_other_service(key: &str) -> bool {
    let about = |services: &[&str], is_meant: &dyn Fn(&str) -> bool| {
        services.iter().any(|service| {
            let option = key.strip_prefix(service).and_then(|rest| rest.strip_prefix('_'));
            option.is_some_and(is_meant)
        })
    };
    about(OTHER_SERVICES, &|option| !option.is_empty())
        || about(OWN_SERVICES, &|option| HARMLESS.contains(&option))
        || key.starts_with("has_")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("image_format", true)]
    #[case("identity_api_version", true)]
    #[case("object_store_endpoint_override", true)]
    #[case("volume_api_version", true)]
    #[case("compute_default_microversion", true)]
    #[case("has_swift", true)]
    #[case("volume_endpoint_override", false)]
    #[case("compute_colour", false)]
    #[case("imageformat", false)]
    #[case("shoe_size", false)]
    fn keys_of_other_services_are_skipped(#[case] key: &str, #[case] is_skipped: bool) {
        assert_eq!(is_of_other_service(key), is_skipped);
    }
}
