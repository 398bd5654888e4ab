// SPDX-License-Identifier: Apache-2.0
//! Table of the operator's figures.

use std::fmt::Write as _;
use std::time::Duration;

use super::load::CLAIMS;
use super::{AWAY, Change, Figures, Scale, Usage};
use crate::table::{mib, short};

/// Goal for the memory in MiB in a cluster with more than a thousand nodes.
const MEMORY_LARGE: f64 = 160.0;
/// Goal for the memory in MiB in a smaller cluster.
const MEMORY: f64 = 64.0;
/// Goal for the delay of a change in seconds.
const REACTION: f64 = 5.0;
/// Share of changes that must meet the goal.
const QUANTILE: f64 = 0.99;

/// Renders the table.
pub(crate) fn render(scale: Scale, figures: &Figures) -> String {
    let Figures { listed, ended, .. } = figures;
    let mut text = format!("\nOperator ({scale})\n");
    line(&mut text, ["measure", "operator", "goal", ""]);
    let (mut met, mut judged) = (0, 0);
    let mut add = |what: &str, value: f64, unit: &str, goal: Option<f64>| {
        let verdict = goal.map(|goal| value <= goal);
        judged += usize::from(verdict.is_some());
        met += usize::from(verdict == Some(true));
        let goal = goal.map(|goal| format!("<= {}", short(goal))).unwrap_or_default();
        let verdict = verdict.map_or("", |met| if met { "met" } else { "not met" });
        line(&mut text, [what, &format!("{} {unit}", short(value)), &goal, verdict]);
    };
    let goal = Some(if scale.nodes > 1_000 { MEMORY_LARGE } else { MEMORY });
    add(
        "from its start to the last operand made",
        figures.install.as_secs_f64(),
        "s",
        None,
    );
    for (when, memory) in [("when all is listed", listed), ("at the end", ended)] {
        add(&format!("resident memory {when}"), mib(memory.now), "MiB", None);
        add(
            "  of it its own, not the program's file",
            mib(memory.anonymous),
            "MiB",
            None,
        );
    }
    add("resident memory, most so far", mib(ended.most), "MiB", goal);
    for (when, usage) in [("at rest", &figures.rest), ("under load", &figures.loaded)] {
        let minutes = usage.lasts.as_secs_f64() / 60.0;
        let requests = usage.asked;
        let waits = [
            ("queue time in the mean", usage.queue.mean()),
            ("  in 99 of 100, not above", usage.queue.bound(QUANTILE)),
        ];
        for (what, seconds) in waits {
            if let Some(seconds) = seconds {
                add(&format!("{what} {when}"), seconds, "s", None);
            }
        }
        add(
            &format!("requests in a minute {when}"),
            f64::from(requests.requests) / minutes,
            "",
            None,
        );
        add(
            "  writes of the status among them",
            f64::from(requests.statuses) / minutes,
            "",
            None,
        );
        let processor = usage.processor.as_secs_f64() / usage.lasts.as_secs_f64();
        add(&format!("processor {when}"), processor * 1e3, "ms/s", None);
    }
    let in_a_minute = |usage: &Usage| f64::from(usage.asked.requests) / usage.lasts.as_secs_f64();
    let more = in_a_minute(&figures.loaded) - in_a_minute(&figures.rest);
    add(
        "requests more under load, for each claim",
        more / f64::from(CLAIMS),
        "",
        None,
    );
    let (first, last) = (
        sorted(figures, |change| change.first),
        sorted(figures, |change| change.last),
    );
    let changes = last.len();
    add(
        "from a changed spec to the first write, median",
        quantile(&first, 0.5),
        "s",
        None,
    );
    add(
        "from a changed spec to the last write, median",
        quantile(&last, 0.5),
        "s",
        None,
    );
    let what = format!("  in {:.0} of 100 (of {changes} changes)", QUANTILE * 100.0);
    add(&what, quantile(&last, QUANTILE), "s", Some(REACTION));
    add("  at most", quantile(&last, 1.0), "s", None);
    let away = format!("after {} s without an answer, two looks took", AWAY.as_secs());
    add(&away, figures.away.look.as_secs_f64(), "s", None);
    #[expect(clippy::cast_precision_loss, reason = "figures of a bench have few digits")]
    add("binary", figures.binary as f64 / 1e6, "MB", None);
    let _ = writeln!(text, "  goals met: {met} of {judged}");
    let lease_state = if figures.away.leads { "was kept" } else { "WAS LOST" };
    let _ = writeln!(text, "  the Lease {lease_state} while the API server did not answer");
    let _ = writeln!(text, "\n  written after the last change, by the API server's audit log");
    for write in &figures.writes {
        let _ = writeln!(text, "    {write}");
    }
    text
}

/// Returns the delays in seconds, ascending.
fn sorted(figures: &Figures, of: impl Fn(&Change) -> Duration) -> Vec<f64> {
    let mut all: Vec<f64> = figures.changes.iter().map(|change| of(change).as_secs_f64()).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Returns a quantile of a sorted list; zero for an empty list.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few hundred"
)]
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

fn line(text: &mut String, [what, figure, goal, verdict]: [&str; 4]) {
    let line = format!("  {what:<52} {figure:>12} {goal:>7} {verdict}");
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{OutageRecovery, Queue, audit::Count};
    use crate::process::Memory;

    #[test]
    fn goals_use_peak_memory_and_99th_percentile() {
        let usage = |requests| Usage {
            lasts: Duration::from_mins(1),
            processor: Duration::from_secs(6),
            asked: Count { requests, statuses: 1 },
            queue: Queue::default(),
        };
        let change = |last| Change {
            first: Duration::from_secs(1),
            last: Duration::from_secs(last),
        };
        let mut changes = vec![change(2); 99];
        changes.push(change(60));
        let mut figures = Figures {
            listed: Memory::default(),
            ended: Memory {
                most: 65 * 1024,
                ..Memory::default()
            },
            install: Duration::from_secs(1),
            rest: usage(60),
            loaded: usage(660),
            changes,
            away: OutageRecovery {
                look: Duration::from_secs(1),
                leads: true,
            },
            writes: vec!["patch daemonsets x".to_owned()],
            binary: 1,
        };
        let scale = |nodes| Scale {
            nodes,
            volumes: 2,
            pods: 3,
        };
        let text = render(scale(1_000), &figures);
        assert!(text.contains("goals met: 1 of 2"), "{text}");
        assert!(
            text.contains("patch daemonsets x") && text.contains("was kept"),
            "{text}"
        );
        let for_each = text
            .lines()
            .find(|line| line.contains("for each claim"))
            .expect("a row");
        assert!(for_each.split_whitespace().any(|word| word == "2"), "{for_each}");
        assert!(render(scale(5_000), &figures).contains("goals met: 2 of 2"));
        figures.changes.push(change(60));
        assert!(render(scale(5_000), &figures).contains("goals met: 1 of 2"));
    }
}
