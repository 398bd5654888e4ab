// SPDX-License-Identifier: Apache-2.0
//! Tables that compare both drivers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use crate::Kind;
use crate::measure::{Figures, Lives};

/// A row: label, our figure, the Go driver's figure, and the goal.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) ours: Option<f64>,
    pub(crate) go: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) goal: Option<Goal>,
}

/// A goal for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// Upper limit of our figure, in the unit of the row.
    AtMost(f64),
    /// Our figure is at most one `n`-th of the Go driver's.
    Share(f64),
}

impl Goal {
    /// Whether the goal is met; `None` without a figure to compare.
    fn is_met(self, row: &Row) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(row.ours? <= limit),
            Self::Share(parts) => Some(row.ours? * parts <= row.go?),
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {}", short(limit)),
            Self::Share(1.0) => "≤ 1".to_owned(),
            Self::Share(parts) => format!("≤ 1/{}", short(parts)),
        }
    }
}

/// Goals for sequential or concurrent volumes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goals {
    /// OpenStack requests per volume lifecycle.
    pub(crate) calls: Goal,
    /// Processor time per volume lifecycle.
    pub(crate) processor: Goal,
    /// Lateness in ms: median and 99th percentile.
    pub(crate) late: [Goal; 2],
}

/// Goals for sequential volumes.
pub(crate) const ALONE: Goals = Goals {
    calls: Goal::AtMost(14.0),
    processor: Goal::Share(1.0),
    late: [Goal::AtMost(500.0), Goal::AtMost(2000.0)],
};

/// Goals for concurrent volumes.
pub(crate) const CROWD: Goals = Goals {
    calls: Goal::AtMost(10.0),
    processor: Goal::Share(4.0),
    late: [Goal::Share(1.0), Goal::Share(1.0)],
};

/// Renders the tables of one cloud.
pub(crate) fn render(kind: Kind, ours: &Figures, go: &Figures) -> String {
    let mut text = table(kind.title(), rows(ours, go));
    calls(&mut text, "one life", &ours.alone, &go.alone);
    for (ours, go) in ours.crowds.iter().zip(&go.crowds) {
        calls(&mut text, &format!("{} at once", ours.count), ours, go);
    }
    text
}

/// Renders rows under a title. The ratio is our figure divided by the Go driver's; lower is better.
pub(crate) fn table(title: &str, rows: Vec<Row>) -> String {
    let mut text = format!("\n{title}\n");
    line(&mut text, ["measure", "ours", "Go driver", "ratio", "goal", ""]);
    let (mut met, mut judged) = (0, 0);
    for row in rows {
        let figure =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{} {}", short(value), row.unit));
        let ratio = match (row.ours, row.go) {
            (Some(ours), Some(go)) if go > 0.0 => format!("{:.2}", ours / go),
            _ => "-".to_owned(),
        };
        let verdict = row.goal.and_then(|goal| goal.is_met(&row));
        judged += usize::from(verdict.is_some());
        met += usize::from(verdict == Some(true));
        line(
            &mut text,
            [
                &row.what,
                &figure(row.ours),
                &figure(row.go),
                &ratio,
                &row.goal.map(Goal::text).unwrap_or_default(),
                verdict.map_or("", |met| if met { "met" } else { "not met" }),
            ],
        );
    }
    let _ = writeln!(text, "  goals met: {met} of {judged}");
    text
}

fn line(text: &mut String, [what, ours, go, ratio, goal, verdict]: [&str; 6]) {
    let line = format!("  {what:<52} {ours:>12} {go:>12} {ratio:>6} {goal:>7} {verdict}");
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Renders the requests by operation.
pub(crate) fn calls(text: &mut String, who: &str, ours: &Lives, go: &Lives) {
    let _ = writeln!(
        text,
        "\n  {:<52} {:>12} {:>12}",
        format!("{who}: OpenStack calls each, by operation"),
        "ours",
        "Go driver"
    );
    let operations: BTreeSet<&String> = ours.requests.keys().chain(go.requests.keys()).collect();
    for operation in operations {
        let figure = |lives: &Lives| {
            let count = lives.requests.get(operation);
            count.map_or_else(|| "-".to_owned(), |count| format!("{:.2}", lives.each(*count)))
        };
        let _ = writeln!(text, "    {operation:<50} {:>12} {:>12}", figure(ours), figure(go));
    }
}

fn rows(ours: &Figures, go: &Figures) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |what: &str, unit: &'static str, goal: Option<Goal>, figure: &dyn Fn(&Figures) -> Option<f64>| {
        rows.push(Row {
            what: what.to_owned(),
            ours: figure(ours),
            go: figure(go),
            unit,
            goal,
        });
    };
    let mut lives = |who: &str, goals: Goals, of: &dyn Fn(&Figures) -> Option<Lives>| {
        add(
            &format!("{who}: OpenStack calls each"),
            "",
            Some(goals.calls),
            &|figures| Some(of(figures)?.requests_each()),
        );
        add(
            &format!("{who}: failed RPCs of all"),
            "",
            Some(Goal::AtMost(0.0)),
            &|figures| Some(count(of(figures)?.failures)),
        );
        add(
            &format!("{who}: processor time each"),
            "ms",
            Some(goals.processor),
            &|figures| Some(ms(of(figures)?.processor_each())),
        );
        let mut own = |what: &str, part: fn(&Lives) -> Duration| {
            add(&format!("{who}: of it {what}"), "ms", None, &|figures| {
                let lives = of(figures)?;
                Some(ms(part(&lives) / lives.count.max(1)))
            });
        };
        own("the controller's own", |lives| lives.processor.controller.own);
        own("the node's own", |lives| lives.processor.node.own);
        own("programs that they start", |lives| {
            lives.processor.controller.programs + lives.processor.node.programs
        });
        add(
            &format!("{who}: an attach is noticed late by, median"),
            "ms",
            Some(goals.late[0]),
            &|figures| of(figures)?.late(50).map(ms),
        );
        add(
            &format!("{who}: the same, 99th percentile"),
            "ms",
            Some(goals.late[1]),
            &|figures| of(figures)?.late(99).map(ms),
        );
    };
    lives("one life", ALONE, &|figures| Some(figures.alone.clone()));
    for (number, crowd) in ours.crowds.iter().enumerate() {
        lives(&format!("{} at once", crowd.count), CROWD, &|figures| {
            figures.crowds.get(number).cloned()
        });
    }
    add("one life: seconds", "s", None, &|figures| {
        Some(figures.alone.wall_each().as_secs_f64())
    });
    for (number, crowd) in ours.crowds.iter().enumerate() {
        let seconds =
            |figures: &Figures, of: fn(&Lives) -> Duration| Some(of(figures.crowds.get(number)?).as_secs_f64());
        let who = format!("{} at once", crowd.count);
        add(
            &format!("{who}: seconds until all are attached"),
            "s",
            Some(Goal::Share(1.0)),
            &|figures| seconds(figures, |lives| lives.attach),
        );
        add(&format!("{who}: seconds of all lives"), "s", None, &|figures| {
            seconds(figures, |lives| lives.wall)
        });
    }
    let mut role = |name: &str, most: f64, of: fn(&Figures) -> [crate::process::Memory; 2]| {
        for (number, when) in ["after the start", "in the end"].iter().enumerate() {
            let goal = Some(Goal::AtMost(most));
            add(&format!("{name}: resident memory {when}"), "MiB", goal, &|figures| {
                Some(mib(of(figures)[number].now))
            });
            add(
                &format!("{name}: of it its own, not the program's file"),
                "MiB",
                None,
                &|figures| Some(mib(of(figures)[number].anonymous)),
            );
        }
        add(
            &format!("{name}: resident memory, most so far"),
            "MiB",
            Some(Goal::AtMost(most)),
            &|figures| Some(mib(of(figures)[1].most)),
        );
    };
    role("controller", 11.0, |figures| {
        [figures.idle.controller, figures.loaded.controller]
    });
    role("node", 8.0, |figures| [figures.idle.node, figures.loaded.node]);
    add("controller: processor time of an idle minute", "ms", None, &|figures| {
        figures.minute.map(|minute| ms(minute.controller))
    });
    add("node: processor time of an idle minute", "ms", None, &|figures| {
        figures.minute.map(|minute| ms(minute.node))
    });
    add("binary", "MB", Some(Goal::Share(5.0)), &|figures| {
        Some(count_u64(figures.binary) / 1e6)
    });
    rows
}

pub(crate) fn short(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(crate) fn mib(kib: u64) -> f64 {
    count_u64(kib) / 1024.0
}

#[expect(clippy::cast_precision_loss, reason = "figures of a bench have few digits")]
pub(crate) fn count(value: usize) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "figures of a bench have few digits")]
fn count_u64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_includes_limit_and_needs_figures() {
        let row = |ours, go| Row {
            what: String::new(),
            ours,
            go,
            unit: "",
            goal: None,
        };
        assert_eq!(Goal::Share(4.0).is_met(&row(Some(1.0), Some(4.0))), Some(true));
        assert_eq!(Goal::Share(4.0).is_met(&row(Some(1.1), Some(4.0))), Some(false));
        assert_eq!(Goal::AtMost(7.0).is_met(&row(Some(7.0), None)), Some(true));
        assert_eq!(Goal::AtMost(7.0).is_met(&row(Some(7.1), None)), Some(false));
        assert_eq!(Goal::Share(4.0).is_met(&row(Some(1.0), None)), None);
    }
}
