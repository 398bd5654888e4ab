// SPDX-License-Identifier: Apache-2.0
//! What the harness tells whoever waits for it.

use std::time::Instant;

/// Prints lines with the seconds since the start to standard error, or nothing.
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
    /// Prints every line.
    pub fn loud() -> Self {
        Self {
            started: Instant::now(),
            quiet: false,
        }
    }

    /// Prints nothing.
    pub fn quiet() -> Self {
        Self {
            started: Instant::now(),
            quiet: true,
        }
    }

    /// One line.
    pub fn say(&self, line: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("[{:6.1} s] {}", self.started.elapsed().as_secs_f64(), line.as_ref());
        }
    }
}
