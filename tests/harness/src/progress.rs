// SPDX-License-Identifier: Apache-2.0
//! Progress messages of the harness.

use std::time::Instant;

/// Prints lines with the seconds since the start on standard error, or nothing.
#[derive(Debug, Clone)]
pub struct Progress {
    started: Instant,
    quiet: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self::loud()
    }
}

impl Progress {
    /// Creates an instance that prints every line.
    pub fn loud() -> Self {
        Self {
            started: Instant::now(),
            quiet: false,
        }
    }

    /// Creates an instance that prints nothing.
    pub fn quiet() -> Self {
        Self {
            started: Instant::now(),
            quiet: true,
        }
    }

    /// Prints a line.
    pub fn say(&self, line: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("[{:6.1} s] {}", self.started.elapsed().as_secs_f64(), line.as_ref());
        }
    }
}
