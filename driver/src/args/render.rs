// SPDX-License-Identifier: Apache-2.0
//! From arguments back to a command line.

use super::Args;
use super::values::render_duration;

impl Args {
    /// The flags that differ from the defaults, without the program's name. `--endpoint` is always among them.
    /// [`Args::from_argv`] reads them back to an equal value.
    pub fn to_argv(&self) -> Vec<String> {
        let defaults = Self::default();
        let mut argv = Argv(vec![format!("--endpoint={}", self.endpoint)]);
        for file in &self.cloud_config {
            argv.push("cloud-config", file.display());
        }
        for name in &self.cloud_name {
            argv.push("cloud-name", name);
        }
        for (cloud, project) in &self.project_id {
            match cloud.as_str() {
                "" => argv.push("project-id", project),
                cloud => argv.push("project-id", format_args!("{cloud}={project}")),
            }
        }
        argv.differing("with-topology", self.with_topology, defaults.with_topology);
        for (key, value) in &self.additional_topology {
            argv.push("additional-topology", format_args!("{key}={value}"));
        }
        argv.differing("cluster", &self.cluster, &defaults.cluster);
        argv.differing("http-endpoint", &self.http_endpoint, &defaults.http_endpoint);
        argv.differing("health-endpoint", &self.health_endpoint, &defaults.health_endpoint);
        argv.differing(
            "provide-controller-service",
            self.provide_controller_service,
            defaults.provide_controller_service,
        );
        argv.differing(
            "provide-node-service",
            self.provide_node_service,
            defaults.provide_node_service,
        );
        argv.differing("pvc-annotations", self.pvc_annotations, defaults.pvc_annotations);
        argv.differing("master", &self.master, &defaults.master);
        argv.differing("kubeconfig", &self.kubeconfig, &defaults.kubeconfig);
        argv.given("kube-api-qps", self.kube_api_qps.as_ref());
        argv.given("kube-api-burst", self.kube_api_burst.as_ref());
        argv.given("min-resync-period", self.min_resync_period.as_ref());
        for text in &self.user_agent {
            argv.push("user-agent", text);
        }
        argv.differing("nodeid", &self.nodeid, &defaults.nodeid);
        argv.differing(
            "node-service-no-os-client",
            self.node_service_no_os_client,
            defaults.node_service_no_os_client,
        );
        argv.given("v", self.verbosity.as_ref());
        argv.given("vmodule", self.vmodule.as_ref());
        argv.given("log-flush-frequency", self.log_flush_frequency.as_ref());
        argv.differing("driver-name", &self.driver_name, &defaults.driver_name);
        argv.given("instance-id", self.instance_id.as_ref());
        argv.given("availability-zone", self.availability_zone.as_ref());
        argv.differing("metadata-url", &self.metadata_url, &defaults.metadata_url);
        for source in &self.search_order {
            argv.push("search-order", source);
        }
        argv.given("max-volumes-per-node", self.max_volumes_per_node.as_ref());
        argv.differing("reserved-volumes", self.reserved_volumes, defaults.reserved_volumes);
        argv.differing("default-fs-type", self.default_fs_type, defaults.default_fs_type);
        for (key, template) in &self.volume_metadata {
            argv.push("volume-metadata", format_args!("{key}={template}"));
        }
        argv.differing("zone-labels", self.zone_labels, defaults.zone_labels);
        for capability in &self.disable_capability {
            argv.push("disable-capability", capability);
        }
        argv.differing(
            "protect-other-clusters",
            self.protect_other_clusters,
            defaults.protect_other_clusters,
        );
        argv.differing("register", self.register, defaults.register);
        argv.differing("unregister", self.unregister, defaults.unregister);
        argv.differing(
            "kubelet-dir",
            self.kubelet_dir.display(),
            defaults.kubelet_dir.display(),
        );
        argv.differing("sys-dir", self.sys_dir.display(), defaults.sys_dir.display());
        argv.differing("dev-dir", self.dev_dir.display(), defaults.dev_dir.display());
        argv.differing("proc-dir", self.proc_dir.display(), defaults.proc_dir.display());
        argv.differing("log-level", &self.log_level, &defaults.log_level);
        argv.differing("log-format", self.log_format, defaults.log_format);
        argv.differing(
            "request-timeout",
            render_duration(self.request_timeout),
            render_duration(defaults.request_timeout),
        );
        argv.differing(
            "attach-timeout",
            render_duration(self.attach_timeout),
            render_duration(defaults.attach_timeout),
        );
        argv.differing(
            "device-in-use-timeout",
            render_duration(self.device_in_use_timeout),
            render_duration(defaults.device_in_use_timeout),
        );
        argv.differing("secure-metrics", self.secure_metrics, defaults.secure_metrics);
        argv.differing("tls-min-version", self.tls_min_version, defaults.tls_min_version);
        for suite in &self.tls_cipher_suites {
            argv.push("tls-cipher-suites", suite);
        }
        argv.0
    }
}

/// Collects `--flag=value` words.
struct Argv(Vec<String>);

impl Argv {
    fn push(&mut self, flag: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{flag}={value}"));
    }

    fn given(&mut self, flag: &str, value: Option<&impl std::fmt::Display>) {
        if let Some(value) = value {
            self.push(flag, value);
        }
    }

    fn differing<T: std::fmt::Display>(&mut self, flag: &str, value: T, default: T) {
        let value = value.to_string();
        if value != default.to_string() {
            self.push(flag, value);
        }
    }
}
