// SPDX-License-Identifier: Apache-2.0
//! Runs a command and prints its report.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use cinder_operator_core::text::make_printable;
use csi_sources::{Sources, UntrustedText, escape_json};
use kube::Client;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    adopt::{self, AdoptionReport},
    args::{Output, PluginArgs, PluginCommand},
    bundle,
    client::{create_client, list_drivers},
    diagnose,
    error::PluginError,
    heartbeat, readiness,
    status::screen,
    table::for_terminal,
    target::Target,
};

/// Maximum number of characters of an error.
const LONGEST_ERROR: usize = 8_000;
/// Maximum number of characters of a text in the report about a driver.
const LONGEST_TEXT: usize = 32_768;

/// Runs the command and returns its exit status.
pub async fn execute(args: PluginArgs) -> ExitCode {
    let failure = args.command.failure_status();
    let result = match create_client(&args).await {
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
    let drivers = list_drivers(client, name).await?;
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

/// Renders the drivers. The text about an empty list is a sentence.
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

#[cfg(test)]
mod tests;
