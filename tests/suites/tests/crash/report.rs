// SPDX-License-Identifier: Apache-2.0
//! What was disturbed, for the reader of the test's output.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

/// Points and lives of one test.
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

    /// One more life, with processes killed at some points, and not at others that it did not come by.
    pub(crate) fn life(&self, points: Vec<String>, missed: Vec<String>) {
        let mut lives = self.lives.lock();
        lives.count += 1;
        lives.points.extend(points);
        lives.missed.extend(missed);
    }

    /// Shown even where the output of tests that pass is not.
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
        // Nobody reads it where standard error is closed.
        drop(std::io::stderr().write_all(text.as_bytes()));
    }
}

/// `CRASH_SEED`, or a number by chance: it repeats the choice of points.
pub(crate) fn seed() -> Result<u32> {
    match std::env::var("CRASH_SEED") {
        Ok(text) => text.parse().context("CRASH_SEED is no number"),
        // A fresh state is keyed at random.
        Err(_) => Ok(u32::try_from(RandomState::new().build_hasher().finish() % 1_000).unwrap_or_default()),
    }
}
