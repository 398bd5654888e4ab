// SPDX-License-Identifier: Apache-2.0
//! Reports the points of kills in the output of the test.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

/// Points and lifecycles of one test.
#[derive(Debug)]
pub(crate) struct Report {
    what: String,
    since: Instant,
    lives: Mutex<Lives>,
}

#[derive(Debug, Default)]
struct Lives {
    count: usize,
    points: Vec<String>,
    missed: Vec<String>,
}

impl Report {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            since: Instant::now(),
            lives: Mutex::default(),
        }
    }

    /// Adds a lifecycle, with the points of its kills, and the points that it did not reach.
    pub(crate) fn life(&self, points: Vec<String>, missed: Vec<String>) {
        let mut lives = self.lives.lock();
        lives.count += 1;
        lives.points.extend(points);
        lives.missed.extend(missed);
    }

    /// Prints the report. The test framework does not capture it.
    pub(crate) fn print(&self) {
        let mut lives = self.lives.lock();
        lives.points.sort();
        let mut text = format!(
            "crash test, {}: {} points in {} lives, {:.0} s\n",
            self.what,
            lives.points.len(),
            lives.count,
            self.since.elapsed().as_secs_f64()
        );
        for point in &lives.points {
            let _ = writeln!(text, "    {point}");
        }
        for place in &lives.missed {
            let _ = writeln!(text, "    not needed this time: {place}");
        }
        // Standard error may be closed.
        drop(std::io::stderr().write_all(text.as_bytes()));
    }
}

/// Returns `CRASH_SEED`, or a random number. It determines the selection of points.
pub(crate) fn seed() -> Result<u32> {
    match std::env::var("CRASH_SEED") {
        Ok(text) => text.parse().context("CRASH_SEED is no number"),
        // A new RandomState has random keys.
        Err(_) => Ok(u32::try_from(RandomState::new().build_hasher().finish() % 1_000).unwrap_or_default()),
    }
}
