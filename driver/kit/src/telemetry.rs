// SPDX-License-Identifier: Apache-2.0
//! Logs to standard error, one line per event.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt::layer as lines};

/// Target of log events in which the Kubernetes client includes undecodable bodies, even of Secrets.
const BODIES: &str = "kube_client::client";

mod requests;

pub use requests::{REQUEST_FIELD, openstack_requests};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line, for collectors.
    #[default]
    Json,
    /// Human-readable text without colors.
    Text,
}

impl LogFormat {
    /// Returns the name that [`FromStr`] parses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LogFormat {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(TelemetryError::ReadFormat { given: text.to_owned() }),
        }
    }
}

/// Reasons why logging could not be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The name of a log format is unknown.
    #[error("log format {given:?} is unknown: use json or text")]
    ReadFormat { given: String },
    /// The level is neither a level nor a list of directives.
    #[error(
        "log level {given:?} cannot be read ({reason}): use error, warn, info, debug or trace, or directives such as info,kube=warn"
    )]
    ReadLevel {
        given: String,
        /// The fault of the level.
        reason: String,
    },
    /// The process already has a subscriber.
    #[error("logging was set up twice in one process")]
    Install,
}

/// Validates a level in the same way as [`init`]. Callers use it to reject an invalid level early.
pub fn check_level(level: &str) -> Result<(), TelemetryError> {
    filter(level).map(drop)
}

/// Sets up logging for the whole process. `level` is one level for all targets, or a list of directives
/// (`info,h2=warn`).
pub fn init(level: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let lines = match format {
        LogFormat::Json => lines()
            .with_writer(std::io::stderr)
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_filter(filter(level)?)
            .boxed(),
        LogFormat::Text => lines()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .with_filter(filter(level)?)
            .boxed(),
    };
    // Uses a separate filter for each layer, so that the recorded ids do not depend on the log level.
    Registry::default()
        .with(lines)
        .with(requests::RequestIds.with_filter(filter_fn(requests::needs_metadata)))
        .try_init()
        .map_err(|_already_set| TelemetryError::Install)
}

fn filter(level: &str) -> Result<Targets, TelemetryError> {
    // The parser treats an unknown level as the name of a target and then disables all other targets. A misspelt level
    // would disable the log.
    let words: Vec<&str> = level.split(',').map(str::trim).collect();
    let is_level = |word: &str| !word.is_empty() && LevelFilter::from_str(word).is_ok();
    // It also treats a span directive as a target, which has no effect here.
    let is_target = |word: &str| word.contains('=') && !word.contains(['[', ']']);
    if let Some(word) = words.iter().find(|word| !is_target(word) && !is_level(word)) {
        let reason = format!("{word:?} is no level, nor MODULE=LEVEL");
        return Err(TelemetryError::ReadLevel {
            given: level.to_owned(),
            reason,
        });
    }
    let targets = Targets::from_str(&words.join(",")).map_err(|error| TelemetryError::ReadLevel {
        given: level.to_owned(),
        reason: error.to_string(),
    })?;
    // Follows the directives of the user, so that it overrides them.
    Ok(targets.with_target(BODIES, LevelFilter::OFF))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one_level("info")]
    #[case::any_case("WARN")]
    #[case::nothing("off")]
    #[case::directives("info, kube=warn,cinder_cloud=trace")]
    fn parses_levels_and_directives(#[case] level: &str) {
        check_level(level).expect("is a level");
    }

    #[rstest]
    fn bodies_are_never_logged(
        #[values(
            "error",
            "warn",
            "info",
            "debug",
            "trace",
            "info,kube=trace",
            "info,kube_client=trace",
            "info,kube_client::client=trace",
            "kube_client::client=trace,trace",
            "info,kube_client::client::builder=trace"
        )]
        level: &str,
    ) {
        let buffer = Arc::<Mutex<Vec<u8>>>::default();
        let writer = Arc::clone(&buffer);
        let lines = lines()
            .with_writer(move || Writer(Arc::clone(&writer)))
            .with_filter(filter(level).expect("is a level"));
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            tracing::error!("other line");
            tracing::error!(target: "kube_client::client", "canary");
            tracing::warn!(target: "kube_client::client", "canary");
            tracing::trace!(target: "kube_client::client", "canary");
        });
        let text = String::from_utf8(buffer.lock().clone()).expect("text");
        assert!(!text.contains("canary"), "{text}");
        assert!(text.contains("other line"), "{text}");
    }

    struct Writer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[rstest]
    #[case::typing_error("inof", "\"inof\" is no level")]
    #[case::one_invalid_directive("info,debgu", "\"debgu\" is no level")]
    #[case::empty("", "is no level")]
    #[case::span_of_module("info,cinder_cloud[call]=debug", "\"cinder_cloud[call]=debug\" is no level")]
    #[case::span_alone("[call]=debug", "is no level")]
    #[case::invalid_level_of_target("kube=loud", "error parsing level")]
    fn invalid_level_error_includes_reason(#[case] level: &str, #[case] reason: &str) {
        let error = check_level(level).expect_err("is no level").to_string();
        assert!(
            error.contains(reason) && error.contains("use error, warn, info"),
            "{error}"
        );
    }

    #[test]
    fn parses_displayed_formats() {
        for format in [LogFormat::Json, LogFormat::Text] {
            assert_eq!(format.to_string().parse::<LogFormat>().expect("is a format"), format);
        }
        assert!(
            "xml"
                .parse::<LogFormat>()
                .expect_err("is no format")
                .to_string()
                .contains("json or text")
        );
    }
}
