// SPDX-License-Identifier: Apache-2.0
//! The command line of the operator.

use std::path::PathBuf;
use std::time::Duration;

use cinder_operator_core::{
    cluster::{KubernetesVersion, OptionalApi, OptionalApis},
    releases::{COMPONENTS, Component, ComponentRow, InstalledImages},
    restrictions::Restrictions,
    units,
};
use clap::{Arg, ArgAction, ArgMatches, Args as ClapArgs, FromArgMatches, Parser, Subcommand};
use csi_kit::{endpoint::TcpAddress, telemetry::LogFormat};

/// The version of this operator, and of the driver that it installs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Namespace of the operator in `config/default`.
pub const DEFAULT_NAMESPACE: &str = "cinder-csi";
/// Default name of the Lease for leader election.
pub const DEFAULT_LEASE: &str = "cinder-csi-operator";

/// Installs the Cinder CSI driver and watches over it.
#[derive(Debug, Clone, Parser)]
#[command(name = "cinder-csi-operator", version, max_term_width = 120)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the program.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Reconcile every CinderCSIDriver of the cluster until the end
    Run(RunArgs),
    /// Print the CustomResourceDefinition of CinderCSIDriver
    Crd,
    /// Print the objects that a CinderCSIDriver becomes, without a cluster
    Render(RenderArgs),
}

/// Flags of `run`.
#[derive(Debug, Clone, ClapArgs)]
pub struct RunArgs {
    /// Namespace of the operator: Secrets are read from it, and the driver runs in it
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// Other namespaces where drivers may run (spec.operandNamespace); the operator needs its role in each
    #[arg(long, value_name = "NAME", value_delimiter = ',', env = "OPERAND_NAMESPACES")]
    pub operand_namespaces: Vec<String>,

    /// Name of this replica in the election of a leader; defaults to a random one
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub pod_name: Option<String>,

    /// Lease by which the replicas agree on a leader
    #[arg(long, value_name = "NAME", default_value = DEFAULT_LEASE)]
    pub lease_name: String,

    /// Address of the HTTP server for /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub admin_address: TcpAddress,

    /// Address of the HTTPS server for /metrics, for clients with the Kubernetes permission to get that path
    #[arg(long, value_name = "ADDRESS", default_value = ":8443")]
    pub metrics_address: TcpAddress,

    /// Certificates in PEM for the HTTPS server; it makes one of its own when there are none. Read again when they change
    #[arg(long, value_name = "FILE", requires = "metrics_key")]
    pub metrics_certificate: Option<PathBuf>,

    /// Key in PEM of the first of these certificates
    #[arg(long, value_name = "FILE", requires = "metrics_certificate")]
    pub metrics_key: Option<PathBuf>,

    /// Serve /metrics without TLS and to every client
    #[arg(long, conflicts_with = "metrics_certificate")]
    pub insecure_metrics: bool,

    /// Whether spec.overrides may be used: who may write it decides what runs on every node, as root
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "true", action = ArgAction::Set)]
    pub allow_overrides: bool,

    /// Registries, with paths below them, that images of a CinderCSIDriver may come from; any without it. With it, overrides cannot change
    /// programs and mounts of the pods
    #[arg(long, value_name = "REGISTRY", value_delimiter = ',')]
    pub allowed_registries: Vec<String>,

    /// How often the credentials are tried while nothing changes
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub credentials_check_interval: Duration,

    /// How long a new pod on a node may take to be Ready and registered before a rollout stops
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub registration_deadline: Duration,

    /// Longest time that one reconcile may take
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    pub reconcile_timeout: Duration,

    /// What is logged: error, warn, info, debug, trace, or a level for each module (kube=debug,info)
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log_level: String,

    /// How log lines are written: json or text
    #[arg(long, value_name = "FORMAT", default_value = LogFormat::Json.as_str())]
    pub log_format: LogFormat,

    /// The images of this installation.
    #[command(flatten)]
    pub images: ImageArgs,
}

impl RunArgs {
    /// Restrictions that the flags impose on authors of CinderCSIDrivers.
    pub fn restrictions(&self) -> Restrictions {
        let named = self.allowed_registries.iter().filter(|name| !name.is_empty());
        Restrictions {
            no_overrides: !self.allow_overrides,
            registries: named.cloned().collect(),
        }
    }
}

/// Flags that replace the default images, one for each component.
#[derive(Debug, Clone, Default)]
pub struct ImageArgs(pub InstalledImages);

impl ClapArgs for ImageArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(COMPONENTS.iter().map(|row| {
            let help = match row.component {
                Component::Driver => "Image of the driver".to_owned(),
                _ => format!("Image of the sidecar {}", row.container),
            };
            Arg::new(row.flag)
                .long(row.flag)
                .env(row.variable)
                .value_name("IMAGE")
                .help(help)
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ImageArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let image = |row: &ComponentRow| Some((row.component, matches.get_one::<String>(row.flag)?.clone()));
        let images = COMPONENTS.iter().filter_map(image);
        Ok(Self(images.filter(|(_, image)| !image.is_empty()).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Flags of `render`.
#[derive(Debug, Clone, ClapArgs)]
pub struct RenderArgs {
    /// File with one CinderCSIDriver, as YAML or JSON; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Namespace of the operator
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// Uid of the namespace kube-system, which identifies the cluster where the spec has no clusterID
    #[arg(long, value_name = "UID", default_value = "00000000-0000-0000-0000-000000000000")]
    pub cluster_uid: String,

    /// Number of nodes of the cluster
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    pub nodes: usize,

    /// Version of the cluster's API server, such as 1.33; defaults to the newest that the table of sidecars knows
    #[arg(long, value_name = "VERSION", value_parser = parse_kubernetes)]
    pub kubernetes_version: Option<KubernetesVersion>,

    /// Optional APIs that the cluster serves, separated by commas; defaults to none
    #[arg(long = "apis", value_name = "API", value_delimiter = ',')]
    pub optional_apis: Vec<OptionalApi>,

    /// cloud.conf for the driver's Secret, which is left out otherwise. Its content is printed
    #[arg(long, value_name = "FILE")]
    pub cloud_conf: Option<PathBuf>,

    /// Certificates in PEM for the driver's Secret
    #[arg(long, value_name = "FILE", requires = "cloud_conf")]
    pub ca_bundle: Option<PathBuf>,

    /// The images of this installation.
    #[command(flatten)]
    pub images: ImageArgs,
}

impl RenderArgs {
    /// The optional APIs of the target cluster.
    pub fn apis(&self) -> OptionalApis {
        self.optional_apis.iter().copied().collect()
    }
}

fn parse_kubernetes(text: &str) -> Result<KubernetesVersion, &'static str> {
    KubernetesVersion::read(text).ok_or("it must be a major and a minor version, as in 1.33")
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    units::duration(text).ok_or("it must be a time of more than nothing, as in 90s, 5m or 1h30m")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cinder_operator_core::releases::Component;
    use clap::{CommandFactory, Parser};
    use rstest::rstest;
    use serde::Deserialize;
    use serde_json::Value;

    use super::{Args, Command, VERSION};

    #[test]
    fn command_line_definition_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn default_addresses_work_without_ipv6() {
        let args = Args::try_parse_from(["operator", "run"]).unwrap();

        let Command::Run(run) = args.command else {
            panic!("not run: {args:?}")
        };
        // A kernel without IPv6 would reject an IPv6 address. An address without a host falls back to IPv4.
        assert_eq!(run.admin_address.to_string(), ":8080");
    }

    #[rstest]
    #[case("90s", 90)]
    #[case("1h30m", 5400)]
    fn durations_have_the_kubernetes_format(#[case] text: &str, #[case] seconds: u64) {
        let args = Args::try_parse_from(["operator", "run", "--reconcile-timeout", text]).unwrap();

        let Command::Run(run) = args.command else {
            panic!("not run: {args:?}")
        };
        assert_eq!(run.reconcile_timeout, Duration::from_secs(seconds));
    }

    #[rstest]
    #[case("0s")]
    #[case("-5s")]
    #[case("5")]
    #[case("soon")]
    fn invalid_duration_error_has_an_example(#[case] text: &str) {
        let error = Args::try_parse_from(["operator", "run", &format!("--reconcile-timeout={text}")])
            .unwrap_err()
            .to_string();

        assert!(error.contains("1h30m"), "{error}");
    }

    #[test]
    fn image_flag_replaces_built_in_image() {
        let args = Args::try_parse_from(["operator", "run", "--driver-image", "mirror/driver:1"]).unwrap();

        let Command::Run(run) = args.command else {
            panic!("not run: {args:?}")
        };
        let images = run.images.0;
        assert_eq!(images[&Component::Driver], "mirror/driver:1");
        assert_eq!(images.get(&Component::Attacher), None);
    }

    #[test]
    fn arguments_in_operator_manifest_are_valid() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/manager/deployment.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let mut documents = serde_yaml::Deserializer::from_str(&text);
        let deployment = Value::deserialize(documents.next().unwrap()).unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let words: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();

        let parsed = Args::try_parse_from(std::iter::once("cinder-csi-operator".to_owned()).chain(words)).unwrap();

        let Command::Run(run) = parsed.command else {
            panic!("not run: {parsed:?}")
        };
        assert_eq!(container["ports"][0]["containerPort"], run.admin_address.port());
        assert_eq!(container["ports"][1]["containerPort"], run.metrics_address.port());
        assert_eq!(
            container["image"],
            format!("ghcr.io/cinder-csi/cinder-csi-operator:v{VERSION}")
        );
        assert_eq!(deployment["metadata"]["namespace"], run.namespace);
    }
}
