//! The command line of the operator.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use csi_kit::{endpoint::TcpAddress, telemetry::LogFormat};

use crate::images::ImageSet;
use crate::observe::{OptionalApi, OptionalApis};

/// The version of this operator, and of the driver that it installs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The namespace of `config/default`.
pub const DEFAULT_NAMESPACE: &str = "cinder-csi";

/// Installs the Cinder CSI driver and watches over it.
#[derive(Debug, Clone, Parser)]
#[command(name = "cinder-csi-operator", version, max_term_width = 120)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program does.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Reconcile every CinderCSIDriver of the cluster until the end
    Run(RunArgs),
    /// Print the CustomResourceDefinition of CinderCSIDriver
    Crd,
    /// Print the objects that a CinderCSIDriver becomes, without a cluster
    Render(RenderArgs),
}

/// How `run` works.
#[derive(Debug, Clone, ClapArgs)]
pub struct RunArgs {
    /// Namespace of the operator: Secrets are read from it, and the driver runs in it
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// Name of this replica in the election of a leader; a random one when it is not given
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub pod_name: Option<String>,

    /// Lease by which the replicas agree on a leader
    #[arg(long, value_name = "NAME", default_value = "cinder-csi-operator")]
    pub lease_name: String,

    /// Address of the HTTP server for /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub admin_address: TcpAddress,

    /// How often the credentials are tried while nothing changes
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub credentials_check_interval: Duration,

    /// Longest time that one reconcile may take
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    pub reconcile_timeout: Duration,

    /// What is logged: error, warn, info, debug, trace, or tracing's filter syntax
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log_level: String,

    /// How log lines are written: json or text
    #[arg(long, value_name = "FORMAT", default_value = LogFormat::Json.as_str())]
    pub log_format: LogFormat,

    /// The images of this installation.
    #[command(flatten)]
    pub images: ImageArgs,
}

/// The images of this installation, where it mirrors those that the operator was built with.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct ImageArgs {
    /// Image of the driver
    #[arg(long, value_name = "IMAGE", env = "RELATED_IMAGE_DRIVER")]
    pub driver_image: Option<String>,

    /// Image of the sidecar csi-provisioner
    #[arg(long, value_name = "IMAGE", env = "RELATED_IMAGE_PROVISIONER")]
    pub provisioner_image: Option<String>,

    /// Image of the sidecar csi-attacher
    #[arg(long, value_name = "IMAGE", env = "RELATED_IMAGE_ATTACHER")]
    pub attacher_image: Option<String>,
}

impl ImageArgs {
    /// The built-in images, with those of the command line in their place.
    pub fn image_set(&self) -> ImageSet {
        let built_in = ImageSet::built_in(VERSION);
        ImageSet {
            driver: self.driver_image.clone().unwrap_or(built_in.driver),
            provisioner: self.provisioner_image.clone().unwrap_or(built_in.provisioner),
            attacher: self.attacher_image.clone().unwrap_or(built_in.attacher),
        }
    }
}

/// How `render` works.
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

    /// Optional APIs that the cluster serves, separated by commas; none when it is not given
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
    /// The optional APIs of the cluster that is rendered for.
    pub fn apis(&self) -> OptionalApis {
        self.optional_apis.iter().copied().collect()
    }
}

/// A time such as 90s, 5m or 1h30m; more than none.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let signed: jiff::SignedDuration = text
        .parse()
        .map_err(|e| format!("{e}; write it as in 90s, 5m or 1h30m"))?;
    match Duration::try_from(signed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("it must be more than nothing, as in 90s, 5m or 1h30m".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};
    use rstest::rstest;

    use super::{Args, Command};

    #[test]
    fn the_flags_fit_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_address_is_listened_on_also_where_there_is_no_ipv6() {
        let args = Args::try_parse_from(["operator", "run"]).unwrap();

        let Command::Run(run) = args.command else {
            panic!("not run: {args:?}")
        };
        // An address of IPv6 would be refused by a kernel without it; no address at all falls back to IPv4.
        assert_eq!(run.admin_address.to_string(), ":8080");
    }

    #[rstest]
    #[case("90s", 90)]
    #[case("1h30m", 5400)]
    fn durations_are_written_as_kubernetes_writes_them(#[case] text: &str, #[case] seconds: u64) {
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
    fn what_is_no_time_is_refused_with_an_example(#[case] text: &str) {
        let error = Args::try_parse_from(["operator", "run", &format!("--reconcile-timeout={text}")])
            .unwrap_err()
            .to_string();

        assert!(error.contains("1h30m"), "{error}");
    }

    #[test]
    fn an_image_of_the_installation_replaces_the_built_in_one() {
        let args = Args::try_parse_from(["operator", "run", "--driver-image", "mirror/driver:1"]).unwrap();

        let Command::Run(run) = args.command else {
            panic!("not run: {args:?}")
        };
        let images = run.images.image_set();
        assert_eq!(images.driver, "mirror/driver:1");
        assert_eq!(images.attacher, "registry.k8s.io/sig-storage/csi-attacher:v4.12.0");
    }
}
