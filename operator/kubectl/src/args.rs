// SPDX-License-Identifier: Apache-2.0
//! The command line of the plugin.

use std::{path::PathBuf, process::ExitCode};

use cinder_csi_operator::args::DEFAULT_NAMESPACE;
use clap::{Parser, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

use crate::target::TARGET_KINDS;

/// The name under which kubectl finds the program. kubectl writes the dash of the command as an underscore.
pub const PROGRAM: &str = "kubectl-cinder_csi";

/// The meaning of the exit status, for the help.
const EXIT_STATUS: &str = "Exit status: 0 on success; 1 on failure, with the cause on standard error; 2 for an invalid command line. Of \
                           adopt: 0 without changes, 1 with changes, 2 on failure.";

/// Inspects the Cinder CSI drivers of a cluster and their volumes.
#[derive(Debug, Clone, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl cinder-csi", version, max_term_width = 120, after_help = EXIT_STATUS)]
pub struct PluginArgs {
    /// The command.
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
    pub(crate) fn failure_status(&self) -> ExitCode {
        match self {
            Self::Adopt { .. } => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs
    Json,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        PluginArgs::command().debug_assert();
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
            format!("{:?}", args.command.failure_status())
        };
        assert_eq!(failure(&["adopt", "--check"]), format!("{:?}", ExitCode::from(2)));
        for words in [&["status"][..], &["diagnose", "claim"], &["support-bundle"]] {
            assert_eq!(failure(words), format!("{:?}", ExitCode::FAILURE), "{words:?}");
        }
    }
}
