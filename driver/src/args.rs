// SPDX-License-Identifier: Apache-2.0
//! The command line: every flag of the Go driver (`cinder-csi-plugin`) with its meaning and default, and the flags of
//! this driver.
//!
//! The manifests and the chart of the Go driver start this program unchanged, so every flag of the Go driver is
//! accepted. Flags without effect are logged, one line each ([`Args::without_effect`]). The operator builds an [`Args`]
//! and renders it with [`Args::to_argv`], so that manifests and driver agree.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser};
use csi_host::FsType;
pub use csi_kit::telemetry::LogFormat;
pub use csi_kit::tls::{CipherSuite, TlsVersion};

use crate::disabled_capabilities::AlphaCapability;
use crate::topology::ZoneLabels;

mod lists;
mod render;
mod values;

use values::{parse_bool, parse_duration, parse_fs_type, parse_pair, parse_project, parse_timeout};

/// The default name of this driver in Kubernetes.
pub const DEFAULT_DRIVER_NAME: &str = "cinder.csi.openstack.org";
/// The address of Nova's metadata service, as seen from every instance.
pub const DEFAULT_METADATA_URL: &str = "http://169.254.169.254";
/// The kubelet's root directory.
pub const DEFAULT_KUBELET_DIR: &str = "/var/lib/kubelet";
/// The program of the Go driver's image, which its manifests pass as the first argument.
///
/// The image of the Go driver executes its arguments. The image of this driver has an entry point, so the argument is
/// removed.
pub const GO_PROGRAM: &str = "/bin/cinder-csi-plugin";
/// The flags of the driver. [`Args::default`] is equal to a command line with `--endpoint` alone.
#[derive(Debug, Clone, PartialEq, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(
    name = "cinder-csi-driver",
    version,
    about = "CSI driver for OpenStack Cinder",
    max_term_width = 120
)]
pub struct Args {
    /// Unix socket on which CSI is served: unix:///csi/csi.sock
    #[arg(long, value_name = "URL")]
    pub endpoint: String,

    /// cloud.conf of the cloud; repeatable, a later file overrides an earlier one. Needed by the controller only
    #[arg(long, value_name = "FILE")]
    pub cloud_config: Vec<PathBuf>,

    /// Name of a [Global "NAME"] section to serve; repeatable, an empty name is the section without one. Without this flag the
    /// section without a name is served, or all where there is none
    #[arg(long, value_name = "NAME")]
    pub cloud_name: Vec<String>,

    /// Id of the project that a cloud of --cloud-config works in; repeatable, with the cloud's name before it where it has one. While its
    /// credentials lead to another project, where its volumes do not exist, all calls that need the cloud are refused
    #[arg(long, value_name = "[CLOUD=]ID", value_parser = parse_project)]
    pub project_id: Vec<(String, String)>,

    /// Report to Kubernetes in which availability zone volumes and nodes are
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub with_topology: bool,

    /// More topology segments of this node, such as topology.kubernetes.io/region=REGION
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub additional_topology: Vec<(String, String)>,

    /// Identifier of the cluster, written to the metadata of every volume
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    pub cluster: String,

    /// Address of the HTTP server for /metrics, such as :8080; empty means none
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    pub http_endpoint: String,

    /// Address of the HTTP server for /healthz and /readyz, such as 127.0.0.1:9898; empty means none
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    pub health_endpoint: String,

    /// Serve the CSI Controller service
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub provide_controller_service: bool,

    /// Serve the CSI Node service
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub provide_node_service: bool,

    /// Follow the annotations cinder.csi.openstack.org/affinity and anti-affinity of claims; the controller reads the claims with its
    /// pod's service account, and csi-provisioner needs --extra-create-metadata
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, action = ArgAction::Set, value_parser = parse_bool)]
    pub pvc_annotations: bool,

    /// Address of the Kubernetes API for --pvc-annotations; the pod's environment names it otherwise
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    pub master: String,

    /// Accepted for the Go driver's manifests: with --pvc-annotations the pod's service account is used, and this is refused
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBECONFIG",
        default_value = "",
        hide_default_value = true
    )]
    pub kubeconfig: String,

    /// Accepted for the Go driver's manifests: claims are read one by one
    #[arg(long, value_name = "RATE")]
    pub kube_api_qps: Option<String>,

    /// Accepted for the Go driver's manifests: claims are read one by one
    #[arg(long, value_name = "COUNT")]
    pub kube_api_burst: Option<String>,

    /// Accepted for the Go driver's manifests: claims are read one by one
    #[arg(long, value_name = "DURATION")]
    pub min_resync_period: Option<String>,

    /// Text put before our own user agent in requests to OpenStack; repeatable
    #[arg(long, value_name = "TEXT")]
    pub user_agent: Vec<String>,

    /// Accepted for old manifests: the node's id comes from --instance-id or the metadata service
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    pub nodeid: String,

    /// Accepted for old manifests: the node service never talks to OpenStack's API
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, action = ArgAction::Set, value_parser = parse_bool)]
    pub node_service_no_os_client: bool,

    /// klog's verbosity: 0 to 3 is info, 4 debug, 5 adds requests and answers without secrets, 8 is everything.
    /// Overrides --log-level
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    pub verbosity: Option<u8>,

    /// Accepted for the Go driver's manifests: logs are not filtered by file
    #[arg(long, value_name = "SPEC")]
    pub vmodule: Option<String>,

    /// Accepted for the Go driver's manifests: logs are written at once
    #[arg(long, value_name = "DURATION")]
    pub log_flush_frequency: Option<String>,

    /// Name under which Kubernetes knows this driver
    #[arg(long, value_name = "NAME", default_value = DEFAULT_DRIVER_NAME)]
    pub driver_name: String,

    /// Nova's id of this machine, also where firmware and metadata name another server; defaults to the id on which these agree
    #[arg(long, value_name = "UUID")]
    pub instance_id: Option<String>,

    /// Availability zone of this machine; defaults to the answer of the metadata service
    #[arg(long, value_name = "ZONE")]
    pub availability_zone: Option<String>,

    /// Base URL of the metadata service; a link-local IPv6 address may name its interface, as in http://[fe80::a9fe:a9fe%eth0]
    #[arg(long, value_name = "URL", default_value = DEFAULT_METADATA_URL)]
    pub metadata_url: String,

    /// Sources of the identity of this machine in their order, of configDrive, metadataService and cloudInit; the last one follows in any
    /// case. dmi is accepted: the firmware confirms all other sources, wherever it is named. Overrides search-order of cloud.conf
    #[arg(long, value_name = "SOURCE", value_delimiter = ',', value_parser = ["configDrive", "metadataService", "cloudInit", "dmi"])]
    pub search_order: Vec<String>,

    /// Most volumes of CSI drivers that one node may have: what a node reports to the scheduler, and what a controller refuses to
    /// exceed; 0 for no limit. Overrides node-volume-attach-limit of cloud.conf
    #[arg(long, value_name = "COUNT")]
    pub max_volumes_per_node: Option<u32>,

    /// Attachments of a node that are kept for volumes that CSI does not attach and that are not attached yet: taken from the number
    /// that the node counts where no limit is given
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    pub reserved_volumes: u32,

    /// File system of a new volume where neither the StorageClass nor the provisioner names one: ext4, xfs or btrfs
    #[arg(long, value_name = "TYPE", default_value = "ext4", value_parser = parse_fs_type)]
    pub default_fs_type: FsType,

    /// Metadata for every volume, as KEY=TEMPLATE; repeatable. ${pvc.name}, ${pvc.namespace}, ${pv.name} and ${cluster} are filled in;
    /// a StorageClass's metadata.KEY parameters go before it
    #[arg(long, value_name = "KEY=TEMPLATE", value_parser = parse_pair)]
    pub volume_metadata: Vec<(String, String)>,

    /// How a zone whose name is no label value becomes one: encoded, so that it can be read back, or sanitised as the Go driver
    /// does, for a cluster whose volumes have such labels
    #[arg(long, value_name = "HOW", default_value = "encoded")]
    pub zone_labels: ZoneLabels,

    /// Turn off a capability that CSI calls alpha and that is served by default, such as GET_VOLUME_HEALTH; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub disable_capability: Vec<AlphaCapability>,

    /// Refuse to delete volumes and snapshots whose metadata name another cluster than --cluster; what names none was imported by
    /// hand and can be deleted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, action = ArgAction::Set, value_parser = parse_bool)]
    pub protect_other_clusters: bool,

    /// Register with the kubelet, in place of the node-driver-registrar sidecar
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, action = ArgAction::Set, value_parser = parse_bool)]
    pub register: bool,

    /// Unregister from the kubelet at start and serve on: the step before an uninstall
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, action = ArgAction::Set, value_parser = parse_bool)]
    pub unregister: bool,

    /// The kubelet's root directory, where the registration and its sockets are
    #[arg(long, value_name = "DIR", default_value = DEFAULT_KUBELET_DIR)]
    pub kubelet_dir: PathBuf,

    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sys_dir: PathBuf,

    /// Where the device nodes are
    #[arg(long, value_name = "DIR", default_value = "/dev")]
    pub dev_dir: PathBuf,

    /// Where procfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc_dir: PathBuf,

    /// What is logged: error, warn, info, debug, trace, or a level for each module (cinder_cloud=debug,info)
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log_level: String,

    /// How log lines are written
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub log_format: LogFormat,

    /// Longest time that one HTTP request to OpenStack may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub request_timeout: Duration,

    /// Longest time that a call waits for a volume to be attached, where its caller waits longer; the work goes on, and the next call
    /// joins it
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = parse_duration)]
    pub attach_timeout: Duration,

    /// How long NodeUnstageVolume waits for a device that an open file, another mount namespace, the device mapper or a program has in
    /// use: then it succeeds with a warning, and the volume may be detached. 0 refuses for as long as it is in use
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_timeout)]
    pub device_in_use_timeout: Duration,

    /// Serve /metrics over TLS, with a certificate that the driver generates at the start
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, action = ArgAction::Set, value_parser = parse_bool)]
    pub secure_metrics: bool,

    /// Oldest version of TLS for --secure-metrics: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    pub tls_min_version: TlsVersion,

    /// Cipher suites for --secure-metrics, by their IANA names; defaults to all that are safe
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<CipherSuite>,
}

impl Default for Args {
    fn default() -> Self {
        let mut args = Self::parse_from(["cinder-csi-driver", "--endpoint="]);
        // Clap may have read it from the environment.
        args.kubeconfig.clear();
        args
    }
}

impl Args {
    /// Parses a command line that starts with the program's name.
    ///
    /// Underscores in flag names are read as hyphens, as in the Go driver: `--log_flush_frequency` is
    /// `--log-flush-frequency`.
    pub fn from_argv<I>(argv: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let argv = argv.into_iter().map(|arg| values::normalise(arg.into()));
        let argv = argv
            .enumerate()
            .filter(|(at, arg)| *at != 1 || arg != GO_PROGRAM)
            .map(|(_, arg)| arg);
        let argv = lists::split(argv).map_err(|reason| Self::command().error(ErrorKind::ValueValidation, reason))?;
        Self::try_parse_from(argv)
    }

    /// Returns the filter of the log, which `-v` determines if it is set, else `--log-level`.
    pub fn log_filter(&self) -> String {
        match self.verbosity {
            None => self.log_level.clone(),
            Some(0..=3) => "info".into(),
            Some(4) => "cinder_csi_driver=debug,cinder_csi_driver::layers=info,cinder_cloud=debug,csi_host=debug,csi_kit=debug,info".into(),
            Some(5..=7) => "cinder_csi_driver=debug,cinder_cloud=debug,csi_host=debug,csi_kit=debug,info".into(),
            Some(_) => "trace".into(),
        }
    }

    /// Lists the flags that are set but have no effect, each with the reason for the log.
    pub fn without_effect(&self) -> Vec<(&'static str, &'static str)> {
        const NO_API: &str = "claims are read one by one, with the service account";
        [
            (
                !self.master.is_empty() && !self.pvc_annotations,
                "--master",
                "the Kubernetes API is used with --pvc-annotations only",
            ),
            (!self.kubeconfig.is_empty(), "--kubeconfig", NO_API),
            (self.kube_api_qps.is_some(), "--kube-api-qps", NO_API),
            (self.kube_api_burst.is_some(), "--kube-api-burst", NO_API),
            (self.min_resync_period.is_some(), "--min-resync-period", NO_API),
            (
                !self.nodeid.is_empty(),
                "--nodeid",
                "the node's id comes from --instance-id or the metadata service",
            ),
            (
                self.node_service_no_os_client,
                "--node-service-no-os-client",
                "the node service never talks to OpenStack's API",
            ),
            (
                self.vmodule.is_some(),
                "--vmodule",
                "use --log-level with a level for each module",
            ),
            (
                self.log_flush_frequency.is_some(),
                "--log-flush-frequency",
                "logs are written at once",
            ),
        ]
        .into_iter()
        .filter_map(|(is_set, flag, why)| is_set.then_some((flag, why)))
        .collect()
    }
}

#[cfg(test)]
mod tests;
