// SPDX-License-Identifier: Apache-2.0

//! Generates the page of the flags of every program, from the types that parse them.

use std::fmt::Write as _;

use cinder_csi_driver::args::Args as DriverArgs;
use cinder_csi_operator::args::Args as OperatorArgs;
use clap::{Arg, Command, CommandFactory as _};
use kubectl_cinder_csi::args::PluginArgs;

use crate::markdown::cell;

/// Generates the page.
pub(crate) fn page(banner: &str) -> String {
    let mut page = format!(
        "{banner}# Flags\n\nOf the operator, the driver and the plugin of kubectl, as `--help` shows them. The operator gives the driver its flags: \
         [settings of the driver](settings.md) has the field of the CinderCSIDriver for each.\n"
    );
    let programs = [
        ("cinder-csi-operator", OperatorArgs::command()),
        ("cinder-csi-driver", DriverArgs::command()),
        ("kubectl cinder-csi", PluginArgs::command()),
    ];
    for (name, command) in programs {
        write_command(&mut page, name, &command);
    }
    page
}

/// Writes a table of a program's arguments, followed by sections for its commands.
fn write_command(page: &mut String, name: &str, command: &Command) {
    let _ = write!(page, "\n## {name}\n");
    if let Some(about) = command.get_about() {
        let _ = write!(page, "\n{}.\n", escaped(about.to_string().trim_end_matches('.')));
    }
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .collect();
    if !arguments.is_empty() {
        page.push_str("\n| flag | default | meaning |\n|---|---|---|\n");
    }
    for argument in arguments {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let environment = argument
            .get_env()
            .map(|name| format!(" Environment: `{}`.", name.to_string_lossy()))
            .unwrap_or_default();
        let _ = writeln!(
            page,
            "| `{}` | {} | {}.{environment} |",
            cell(&usage(argument)),
            default(argument),
            escaped(help.trim_end_matches('.')),
        );
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        write_command(page, &format!("{name} {}", below.get_name()), below);
    }
}

/// The form of an argument on the command line.
fn usage(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(clap::builder::Str::as_str).collect();
    let values = values.join(" ");
    match argument.get_long() {
        // `-v` is the form of klog, and `--v` has the same effect.
        Some(long) if argument.get_action().takes_values() => format!("--{long}={values}"),
        Some(long) => format!("--{long}"),
        None => values,
    }
}

fn default(argument: &Arg) -> String {
    if argument.is_hide_default_value_set() || !argument.get_action().takes_values() {
        return String::new();
    }
    let values = argument.get_default_values().iter();
    let values: Vec<String> = values
        .map(|value| format!("`{}`", cell(&value.to_string_lossy())))
        .collect();
    values.join(", ")
}

/// Escapes text for a page, where `<` would begin an element.
fn escaped(text: &str) -> String {
    cell(text).replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_every_program_and_flag() {
        let page = page("");

        for part in [
            "\n## cinder-csi-operator run\n",
            "\n## cinder-csi-driver\n",
            "\n## kubectl cinder-csi diagnose\n",
            "\n| `--lease-name=NAME` | `cinder-csi-operator` | Lease by which the replicas agree on a leader. |\n",
            "Environment: `POD_NAMESPACE`. |\n",
            "\n| `--insecure-metrics` |  | ",
            "\n| `--register=BOOL` |  | ",
            "\n| `--kubelet-dir=DIR` | `/var/lib/kubelet` | ",
            "\n| `PVC\\|KIND/NAME` |  | ",
        ] {
            assert!(page.contains(part), "no {part:?} in\n{page}");
        }
        let flags = DriverArgs::command();
        for flag in flags.get_arguments().filter_map(Arg::get_long) {
            assert!(page.contains(&format!("| `--{flag}")), "no --{flag}");
        }
    }
}
