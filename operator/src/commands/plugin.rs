// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi`, a plugin: the same program under the name `kubectl-cinder_csi`. It reads with the kubeconfig
//! and the rights of the user, and changes nothing in the cluster.

mod adopt;
mod bundle;
mod completion;
mod diagnose;
mod error;
mod heartbeat;
mod readiness;
mod status;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::text::make_printable;
use clap::{Parser, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use csi_sources::{Sources, UntrustedText, escape_json};
use kube::{
    Client, Config, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::{DEFAULT_NAMESPACE, Output},
    commands::table::for_terminal,
    kubernetes::{GuardedApi, connect},
};

use diagnose::{TARGET_KINDS, Target};

pub use adopt::AdoptionReport;
pub use completion::{COMPLETION, complete};
pub use error::PluginError;
pub use status::screen;

/// The name under which kubectl finds the program. kubectl writes the dash of the command as an underscore.
pub const PROGRAM: &str = "kubectl-cinder_csi";

/// Maximum number of characters of an error.
const LONGEST_ERROR: usize = 8_000;
/// Maximum number of characters of a text in the report about a driver.
const LONGEST_TEXT: usize = 32_768;

/// The meaning of the exit status, for the help.
const EXIT_STATUS: &str = "Exit status: 0 on success; 1 on failure, with the cause on standard error; 2 for an invalid command line. Of \
                           adopt: 0 without changes, 1 with changes, 2 on failure.";

/// Inspects the Cinder CSI drivers of a cluster and their volumes.
#[derive(Debug, Clone, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl cinder-csi", version, max_term_width = 120, after_help = EXIT_STATUS)]
pub struct PluginArgs {
    /// What to show.
    #[command(subcommand)]
    pub command: PluginCommand,

    /// The kubeconfig to use
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,

    /// Namespace of the operator
    #[arg(long, global = true, value_name = "NAME", default_value = DEFAULT_NAMESPACE)]
    pub operator_namespace: String,
}

/// Commands of the plugin.
#[derive(Debug, Clone, Subcommand)]
pub enum PluginCommand {
    /// Show each driver on one screen: version, rollout, conditions, clouds, stuck volumes
    Status {
        /// A CinderCSIDriver; defaults to all of them
        #[arg(value_name = "NAME")]
        name: Option<String>,

        /// Wait until the driver is ready first, and fail when it is stalled
        #[arg(long, requires = "name")]
        wait: bool,

        /// Limit of --wait in seconds
        #[arg(long, value_name = "SECONDS", requires = "wait", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        timeout: u64,

        /// For people or for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Show the operator's findings about the volume of a claim, pod, PersistentVolume, VolumeSnapshot or VolumeAttachment
    Diagnose {
        /// Name of a PersistentVolumeClaim, or KIND/NAME with a kind of pvc, pod, pv, volumesnapshot, volumeattachment
        #[arg(value_name = "PVC|KIND/NAME", add = ArgValueCandidates::new(kinds))]
        object: String,

        /// Name of the object where only its kind comes before
        #[arg(value_name = "NAME")]
        name: Option<String>,

        /// Its namespace; defaults to that of the context
        #[arg(short, long, value_name = "NAME")]
        namespace: Option<String>,

        /// For people or for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// List what changes for volumes, classes and settings in a migration from another installation of the driver
    Adopt {
        /// A CinderCSIDriver of the cluster; all of them when neither it nor a file is given
        #[arg(value_name = "NAME", conflicts_with = "filename")]
        name: Option<String>,

        /// Check only. spec.adoption.mode of the CinderCSIDriver starts the migration
        #[arg(long, required = true)]
        check: bool,

        /// File with one CinderCSIDriver, as YAML or JSON, to be used in place of the cluster's; - is standard input
        #[arg(short, long, value_name = "FILE")]
        filename: Option<PathBuf>,

        /// Namespace of the other installation; defaults to spec.adoption.namespace
        #[arg(short, long, value_name = "NAME")]
        namespace: Option<String>,

        /// For people or for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: Output,
    },
    /// Collect objects and logs for support, without secrets
    SupportBundle {
        /// Directory to write to, which must not exist yet; it defaults to cinder-csi-support-TIME
        #[arg(short, long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}

impl PluginCommand {
    /// Exit status after a failure. `adopt` does not use 1, because 1 reports findings.
    fn failure(&self) -> ExitCode {
        match self {
            Self::Adopt { .. } => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Whether the program was called under the name `by`, under which kubectl finds it.
pub fn is_called(program: Option<&str>, by: &str) -> bool {
    let name = program.and_then(|path| path.rsplit('/').next());
    name.is_some_and(|name| name == by)
}

/// Runs the command and returns its exit status.
pub async fn execute(args: PluginArgs) -> ExitCode {
    let failure = args.command.failure();
    let result = match client(&args).await {
        Ok(client) => run(&client, args, &mut io::stdout().lock()).await,
        Err(error) => Err(error),
    };
    result.unwrap_or_else(|error| {
        eprintln!("kubectl cinder-csi: {}", printable_error(&error));
        failure
    })
}

/// Formats the error as one line of printable characters.
fn printable_error(error: &PluginError) -> String {
    UntrustedText::with_limit(&error.to_string(), LONGEST_ERROR).to_string()
}

async fn run(client: &Client, args: PluginArgs, out: &mut impl Write) -> Result<ExitCode, PluginError> {
    let mut code = ExitCode::SUCCESS;
    let operators = args.operator_namespace;
    let text = match args.command {
        PluginCommand::Status {
            name,
            wait,
            timeout,
            output,
        } => {
            if let Some(name) = name.as_deref().filter(|_| wait) {
                readiness::wait_until_ready(client, name, Duration::from_secs(timeout)).await?;
            }
            status_text(client, &operators, name.as_deref(), output).await?
        }
        PluginCommand::Diagnose {
            object,
            name,
            namespace,
            output,
        } => {
            let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
            let target = Target::parse(&object, name.as_deref(), &namespace).map_err(PluginError::UnknownKind)?;
            let report = diagnose::report(client, &target, &operators, Sources::system().now()).await?;
            match output {
                Output::Json => json(&report)?,
                Output::Text => for_terminal(&report.to_string()),
            }
        }
        PluginCommand::Adopt {
            name,
            check: _,
            filename,
            namespace,
            output,
        } => {
            let (name, file, namespace) = (name.as_deref(), filename.as_deref(), namespace.as_deref());
            let reports = adopt::reports(client, name, file, namespace, &operators).await?;
            code = ExitCode::from(u8::from(reports.iter().any(AdoptionReport::differs)));
            show(output, &reports, || {
                let texts = reports.iter().map(AdoptionReport::to_string);
                for_terminal(&texts.collect::<Vec<_>>().join("\n"))
            })?
        }
        PluginCommand::SupportBundle { directory } => {
            let directory = directory.unwrap_or_else(|| {
                let now = Sources::system().now();
                PathBuf::from(now.strftime("cinder-csi-support-%Y%m%dT%H%M%SZ").to_string())
            });
            for_terminal(&format!("{}\n", bundle::gather(client, &operators, &directory).await?))
        }
    };
    out.write_all(text.as_bytes())
        .map_err(PluginError::write("to standard output"))?;
    Ok(code)
}

/// Renders the state of the operator, and a screen for each driver.
async fn status_text(
    client: &Client,
    operators: &str,
    name: Option<&str>,
    output: Output,
) -> Result<String, PluginError> {
    let drivers = drivers(client, name).await?;
    let namespaces = heartbeat::lease_namespaces(operators, &drivers);
    let operator = heartbeat::heartbeat(client, &namespaces, Sources::system().now()).await;
    if matches!(output, Output::Json) {
        return json(&json!({"operator": operator, "drivers": drivers}));
    }
    let screens = show(output, &drivers, || {
        let drivers = drivers.iter().cloned();
        let screens = drivers.map(|driver| screen(&make_printable(driver, LONGEST_TEXT)));
        screens.collect::<Vec<_>>().join("\n")
    })?;
    Ok(for_terminal(&format!("{operator}\n{screens}")))
}

/// Renders the drivers, or a sentence if there are none.
fn show<T: Serialize>(output: Output, drivers: &[T], text: impl FnOnce() -> String) -> Result<String, PluginError> {
    match output {
        Output::Json => json(&drivers),
        Output::Text if drivers.is_empty() => {
            Ok("There is no CinderCSIDriver in this cluster. config/samples has one to begin with.\n".to_owned())
        }
        Output::Text => Ok(text()),
    }
}

/// Encodes objects as printable JSON, without managed fields and the last applied configuration.
fn json(value: &impl Serialize) -> Result<String, PluginError> {
    let mut value = serde_json::to_value(value)?;
    let objects = match &mut value {
        Value::Object(report) => report.get_mut("drivers"),
        list => Some(list),
    };
    let objects = objects.and_then(Value::as_array_mut).into_iter().flatten();
    objects.for_each(bundle::without_bookkeeping);
    Ok(escape_json(&format!("{value:#}\n")))
}

/// The kinds of objects that `diagnose` accepts, for completion.
fn kinds() -> Vec<CompletionCandidate> {
    let candidate = |words: &[&'static str], help: &'static str| {
        let word = words.first().map(CompletionCandidate::new);
        word.map(|word| word.help(Some(help.into())))
    };
    let kinds = TARGET_KINDS.iter();
    kinds.filter_map(|(_, _, words, help)| candidate(words, help)).collect()
}

async fn client(args: &PluginArgs) -> Result<Client, PluginError> {
    // rustls checks the certificate of the API server. Its provider is chosen once per process.
    drop(rustls::crypto::ring::default_provider().install_default());
    let options = KubeConfigOptions {
        context: args.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = match &args.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).map_err(PluginError::configure)?;
            Config::from_custom_kubeconfig(read, &options)
                .await
                .map_err(PluginError::configure)
        }
        None if args.context.is_some() => Config::from_kubeconfig(&options).await.map_err(PluginError::configure),
        // A pod has no kubeconfig; the client then uses the service account of the pod.
        None => Config::infer().await.map_err(PluginError::configure),
    }?;
    connect(config).map_err(PluginError::read("make a client of the API server"))
}

async fn drivers(client: &Client, name: Option<&str>) -> Result<Vec<CinderCSIDriver>, PluginError> {
    let api: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let Some(name) = name else {
        let mut drivers = api
            .list(&ListParams::default())
            .await
            .map_err(PluginError::read("list the CinderCSIDrivers"))?;
        drivers.sort_by_key(ResourceExt::name_any);
        return Ok(drivers);
    };
    let driver = api
        .get_opt(name)
        .await
        .map_err(PluginError::read(format!("read CinderCSIDriver {name}")))?;
    Ok(vec![driver.ok_or_else(|| PluginError::NoDriver(name.to_owned()))?])
}

#[cfg(test)]
mod terminal_tests;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use rstest::rstest;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        PluginArgs::command().debug_assert();
    }

    #[rstest]
    #[case(Some("/usr/local/bin/kubectl-cinder_csi"), true)]
    #[case(Some("kubectl-cinder_csi"), true)]
    #[case(Some("/usr/local/bin/cinder-csi-operator"), false)]
    #[case(Some("/srv/kubectl-cinder_csi/operator"), false)]
    #[case(None, false)]
    fn plugin_is_recognized_by_program_name(#[case] program: Option<&str>, #[case] expected: bool) {
        assert_eq!(is_called(program, PROGRAM), expected);
    }

    #[test]
    fn short_flags_have_same_meaning_in_all_commands() {
        let mut command = PluginArgs::command();
        command.build();
        for subcommand in command.get_subcommands() {
            for flag in subcommand.get_arguments() {
                let expected = match flag.get_long() {
                    Some("namespace") => Some('n'),
                    Some("output") => Some('o'),
                    _ => flag.get_short().filter(|short| !['n', 'o'].contains(short)),
                };
                assert_eq!(
                    flag.get_short(),
                    expected,
                    "{} of {}",
                    flag.get_id(),
                    subcommand.get_name()
                );
            }
        }
    }

    #[test]
    fn failure_of_adopt_differs_from_findings() {
        let failure = |words: &[&str]| {
            let args = PluginArgs::try_parse_from([&[PROGRAM], words].concat()).expect("a command line");
            format!("{:?}", args.command.failure())
        };
        assert_eq!(failure(&["adopt", "--check"]), format!("{:?}", ExitCode::from(2)));
        for words in [&["status"][..], &["diagnose", "claim"], &["support-bundle"]] {
            assert_eq!(failure(words), format!("{:?}", ExitCode::FAILURE), "{words:?}");
        }
    }
}
