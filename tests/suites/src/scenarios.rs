// SPDX-License-Identifier: Apache-2.0
//! Runs scenarios that share an expensive environment, which libtest does not support. They run in order, and each
//! restores the environment.
//!
//! Arguments select the scenarios whose names contain one of them; `!WORD` excludes scenarios. The result of every
//! scenario is printed immediately. The end repeats skipped scenarios and failures, so that the last lines of a long
//! log suffice.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

/// Limit of a scenario. Each wait in a scenario has a shorter limit with a specific error.
const LIMIT: Duration = Duration::from_mins(20);

/// A function of the suite, named by its path.
#[derive(Debug)]
pub struct Scenario<World> {
    /// Name, for selection and reports.
    pub name: &'static str,
    pub run: for<'a> fn(&'a World) -> LocalBoxFuture<'a, Result<()>>,
}

impl<World> Scenario<World> {
    /// Runs the scenario with the limit, and returns its duration.
    pub async fn attempt(&self, world: &World) -> (Result<()>, Duration) {
        self.attempt_within(LIMIT, world).await
    }

    async fn attempt_within(&self, limit: Duration, world: &World) -> (Result<()>, Duration) {
        let begun = Instant::now();
        let outcome = AssertUnwindSafe((self.run)(world)).catch_unwind();
        let outcome = match tokio::time::timeout(limit, outcome).await {
            Ok(ended) => ended.unwrap_or_else(|panic| Err(panic_to_error(panic.as_ref()))),
            Err(_) => Err(anyhow!("it was ended after {limit:?}")),
        };
        (outcome, begun.elapsed())
    }
}

/// Lists the scenarios of a suite as paths of functions: `scenarios![life::claim_gets_volume]`.
#[macro_export]
macro_rules! scenarios {
    ($($scenario:path),* $(,)?) => {
        vec![$($crate::scenarios::Scenario {
            name: stringify!($scenario),
            run: |world| Box::pin($scenario(world)),
        }),*]
    };
}

/// Result of a scenario.
#[derive(Debug, Clone, Copy)]
pub struct ScenarioResult {
    pub name: &'static str,
    /// Whether it passed.
    pub passed: bool,
    /// Duration.
    pub time: Duration,
}

/// Runs a suite: `run` starts the shared environment and passes it to [`Scenarios::run`].
pub fn main<World>(all: Vec<Scenario<World>>, run: impl AsyncFnOnce(&mut Scenarios<World>) -> Result<()>) -> ExitCode {
    main_of_some(all, |_| true, run)
}

/// Like [`main`], for a suite that runs only a part without arguments.
pub fn main_of_some<World>(
    all: Vec<Scenario<World>>,
    without_words: impl Fn(&str) -> bool,
    run: impl AsyncFnOnce(&mut Scenarios<World>) -> Result<()>,
) -> ExitCode {
    finish(all, without_words, |scenarios| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().build().context("cannot make a runtime")?;
        runtime.block_on(run(scenarios))
    })
}

/// Like [`main`], for a suite that creates its own runtime, for example in a lab.
pub fn main_without_runtime<World>(
    all: Vec<Scenario<World>>,
    run: impl FnOnce(&mut Scenarios<World>) -> Result<()>,
) -> ExitCode {
    finish(all, |_| true, run)
}

fn finish<World>(
    all: Vec<Scenario<World>>,
    without_words: impl Fn(&str) -> bool,
    run: impl FnOnce(&mut Scenarios<World>) -> Result<()>,
) -> ExitCode {
    // cargo-nextest lists tests first, and then starts a process for each. Scenarios share one environment, so this list
    // is empty.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut scenarios = Scenarios::choose(all, &words, without_words);
    let outcome = if scenarios.chosen.is_empty() {
        Err(anyhow!("no scenario has one of {words:?} in its name"))
    } else {
        run(&mut scenarios)
    };
    let end = scenarios.end(outcome);
    println!("\n{end}");
    if end.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The scenarios of a suite, and the results so far.
#[derive(Debug)]
pub struct Scenarios<World> {
    chosen: Vec<Scenario<World>>,
    limit: Duration,
    not_run: Vec<&'static str>,
    passed: usize,
    failed: Vec<(&'static str, String)>,
}

impl<World> Scenarios<World> {
    fn choose(all: Vec<Scenario<World>>, words: &[String], without_words: impl Fn(&str) -> bool) -> Self {
        let (left_out, wanted): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with('!'));
        let is_chosen = |name: &str| {
            let is_left_out = left_out.iter().any(|word| name.contains(word.trim_start_matches('!')));
            let is_wanted = wanted.iter().any(|word| name.contains(word.as_str()));
            !is_left_out && (is_wanted || wanted.is_empty() && without_words(name))
        };
        let not_run = all.iter().map(|scenario| scenario.name).collect();
        let chosen = all.into_iter().filter(|scenario| is_chosen(scenario.name)).collect();
        Self {
            chosen,
            limit: LIMIT,
            not_run,
            passed: 0,
            failed: Vec::new(),
        }
    }

    /// Runs the selected scenarios. After each, `settle` receives its result, prints diagnostics of a failure, and
    /// restores the environment. An error of `settle` ends the run.
    pub async fn run(
        &mut self,
        world: &World,
        mut settle: impl AsyncFnMut(ScenarioResult) -> Result<()>,
    ) -> Result<()> {
        for scenario in &self.chosen {
            let name = scenario.name;
            let (outcome, time) = scenario.attempt_within(self.limit, world).await;
            let seconds = time.as_secs_f64();
            self.not_run.retain(|other| *other != name);
            let passed = match outcome {
                Ok(()) => {
                    println!("test {name} ... ok ({seconds:.1} s)");
                    self.passed += 1;
                    true
                }
                Err(error) => {
                    println!("test {name} ... FAILED ({seconds:.1} s)\n    {error:#}");
                    self.failed.push((name, format!("{error:#}")));
                    false
                }
            };
            let ended = ScenarioResult { name, passed, time };
            settle(ended).await.with_context(|| format!("after {name}"))?;
        }
        Ok(())
    }

    /// Returns the number of failures so far.
    pub fn failed(&self) -> usize {
        self.failed.len()
    }

    fn end(self, outcome: Result<()>) -> End {
        End {
            passed: self.passed,
            failed: self.failed,
            not_run: self.not_run,
            error: outcome.err(),
        }
    }
}

/// Converts a panic to an error.
fn panic_to_error(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow!("it panicked: {}", text.unwrap_or("it did not say why"))
}

/// Result of a suite.
#[derive(Debug)]
struct End {
    passed: usize,
    failed: Vec<(&'static str, String)>,
    not_run: Vec<&'static str>,
    /// An error outside of the scenarios.
    error: Option<anyhow::Error>,
}

impl End {
    fn is_good(&self) -> bool {
        self.passed > 0 && self.failed.is_empty() && self.error.is_none()
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.not_run {
            writeln!(f, "not run: {name}")?;
        }
        for (name, error) in &self.failed {
            writeln!(f, "failed: {name}\n    {error}")?;
        }
        if let Some(error) = &self.error {
            writeln!(f, "the suite did not end as it should: {error:#}")?;
        }
        let (passed, failed) = (self.passed, self.failed.len());
        write!(f, "{passed} passed, {failed} failed")?;
        if !self.not_run.is_empty() {
            write!(f, ", {} not run", self.not_run.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::{bail, ensure};

    use super::*;

    #[derive(Default)]
    struct World(RefCell<Vec<&'static str>>);

    async fn good(world: &World) -> Result<()> {
        world.0.borrow_mut().push("good");
        Ok(())
    }

    async fn bad(_: &World) -> Result<()> {
        bail!("a reason")
    }

    async fn broken(_: &World) -> Result<()> {
        panic!("an index")
    }

    async fn run(words: &[&str]) -> End {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut scenarios = Scenarios::choose(scenarios![bad, broken, good], &words, |name| name == "good");
        let outcome = scenarios.run(&World::default(), async |_| Ok(())).await;
        scenarios.end(outcome)
    }

    #[tokio::test]
    async fn summary_lists_failed_and_skipped_scenarios() {
        let end = run(&["bad", "brok"]).await;
        assert_eq!(
            end.to_string(),
            "not run: good\nfailed: bad\n    a reason\nfailed: broken\n    it panicked: an index\n0 passed, 2 failed, 1 not run"
        );
        assert!(!end.is_good());
    }

    #[tokio::test]
    async fn scenario_fails_at_time_limit() {
        async fn endless(_: &World) -> Result<()> {
            std::future::pending().await
        }

        let mut scenarios = Scenarios::choose(scenarios![endless, good], &[], |_| true);
        scenarios.limit = Duration::from_millis(10);
        let outcome = scenarios.run(&World::default(), async |_| Ok(())).await;
        assert_eq!(
            scenarios.end(outcome).to_string(),
            "failed: endless\n    it was ended after 10ms\n1 passed, 1 failed"
        );
    }

    #[tokio::test]
    async fn suite_may_run_part_by_default() {
        let end = run(&[]).await;
        assert_eq!(
            end.to_string(),
            "not run: bad\nnot run: broken\n1 passed, 0 failed, 2 not run"
        );
    }

    #[test]
    fn arguments_select_and_exclude_scenarios() {
        let chosen = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            let scenarios = Scenarios::<World>::choose(scenarios![bad, broken, good], &words, |_| true);
            scenarios
                .chosen
                .iter()
                .map(|scenario| scenario.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["b"]), ["bad", "broken"]);
        assert_eq!(chosen(&["!b"]), ["good"]);
        assert_eq!(chosen(&["b", "!bad"]), ["broken"]);
    }

    #[tokio::test]
    async fn run_without_scenarios_fails() {
        let end = run(&["good"]).await;
        assert_eq!(
            end.to_string(),
            "not run: bad\nnot run: broken\n1 passed, 0 failed, 2 not run"
        );
        assert!(end.is_good());
        assert!(!run(&["nothing has this name"]).await.is_good());
    }

    #[tokio::test]
    async fn failed_settle_ends_run() {
        let mut scenarios = Scenarios::choose(scenarios![good, bad], &[], |_| true);
        let world = World::default();
        let outcome = scenarios
            .run(&world, async |ended| {
                ensure!(!ended.passed, "it does not settle");
                Ok(())
            })
            .await;
        let end = scenarios.end(outcome);
        assert!(!end.is_good());
        assert_eq!(
            end.to_string(),
            "not run: bad\nthe suite did not end as it should: after good: it does not settle\n1 passed, 0 failed, 1 not run"
        );
        assert_eq!(*world.0.borrow(), ["good"]);
    }
}
