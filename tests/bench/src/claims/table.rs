// SPDX-License-Identifier: Apache-2.0
//! Table of both drivers' figures in clusters.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Claims, Figures, Step};
use crate::Kind;
use crate::measure::{Roles, percentile};
use crate::process::{Memory, Processor};
use crate::table::{ALONE, CROWD, Goal, Goals, Row, calls, count, mib, ms, table};

/// Up to this number of claims, the table has no row for the maximum.
const FEW: u32 = 10;

/// Renders the tables of one cloud.
pub(crate) fn render(kind: Kind, ours: &Figures, go: &Figures) -> String {
    let title = format!(
        "Claims through external-provisioner and external-attacher: {}",
        kind.title()
    );
    let mut text = table(&title, rows(ours, go));
    for (name, figures) in [("ours", ours), ("the Go driver", go)] {
        let Roles { controller, node } = figures.processes;
        let _ = writeln!(
            text,
            "  {name}: {controller} processes as controllers, {node} on nodes; memory is that of the largest"
        );
    }
    calls(&mut text, "a claim and its pod", &ours.alone.lives, &go.alone.lives);
    if let (Some(ours), Some(go)) = (&ours.crowd, &go.crowd) {
        let who = format!("{} claims at once", ours.lives.count);
        calls(&mut text, &who, &ours.lives, &go.lives);
    }
    text
}

/// Collects the rows of a table.
struct Rows<'a> {
    ours: &'a Figures,
    go: &'a Figures,
    taken: Vec<Row>,
}

impl Rows<'_> {
    fn add(&mut self, what: &str, unit: &'static str, goal: Option<Goal>, figure: impl Fn(&Figures) -> Option<f64>) {
        self.taken.push(Row {
            what: what.to_owned(),
            ours: figure(self.ours),
            go: figure(self.go),
            unit,
            goal,
        });
    }

    /// Adds the rows that a single claim and a crowd have in common.
    fn claims(&mut self, who: &str, goals: Goals, of: impl Fn(&Figures) -> Option<&Claims>) {
        let seconds = |time: Option<Duration>| Some(time?.as_secs_f64());
        self.add(
            &format!("{who}: the driver's OpenStack calls each"),
            "",
            Some(goals.calls),
            |figures| Some(of(figures)?.lives.requests_each()),
        );
        let none = Some(Goal::AtMost(0.0));
        self.add(&format!("{who}: claims that failed"), "", none, |figures| {
            Some(count(of(figures)?.failed))
        });
        self.add(
            &format!("{who}: failed calls that were repeated"),
            "",
            none,
            |figures| Some(count(of(figures)?.lives.failures)),
        );
        for (step, what) in [
            (Step::Bind, "claim to bound"),
            (Step::Attach, "VolumeAttachment to attached"),
            (Step::Ready, "pod to Ready"),
            (Step::Use, "claim to use"),
            (Step::Detach, "end of VolumeAttachment"),
            (Step::Delete, "end of claim to end of volume"),
        ] {
            if of(self.ours).is_none_or(|claims| !claims.steps.contains_key(&step)) {
                continue;
            }
            self.add(&format!("{who}: {what}, median"), "s", None, |figures| {
                seconds(of(figures)?.time(step, 50))
            });
            // For few claims, the maximum equals the percentile.
            if of(self.ours).is_some_and(|claims| claims.lives.count > FEW) {
                self.add(&format!("{who}: {what}, longest"), "s", None, |figures| {
                    seconds(of(figures)?.time(step, 100))
                });
            }
        }
        for (what, attaching) in [("an attach", true), ("a detach", false)] {
            let late = |figures: &Figures, per_cent| {
                let claims = of(figures)?;
                let sorted = if attaching {
                    &claims.lives.lateness
                } else {
                    &claims.late_detach
                };
                percentile(sorted, per_cent).map(ms)
            };
            self.add(
                &format!("{who}: {what} is noticed late by, median"),
                "ms",
                Some(goals.late[0]),
                |figures| late(figures, 50),
            );
            self.add(
                &format!("{who}: the same, 99th percentile"),
                "ms",
                Some(goals.late[1]),
                |figures| late(figures, 99),
            );
        }
        self.add(
            &format!("{who}: processor time each"),
            "ms",
            Some(goals.processor),
            |figures| Some(ms(of(figures)?.lives.processor_each())),
        );
        let part = |figures: &Figures, part: fn(Roles<Processor>) -> Processor| {
            let lives = &of(figures)?.lives;
            let used = part(lives.processor);
            Some(ms((used.own + used.programs) / lives.count.max(1)))
        };
        self.add(&format!("{who}: of it all controllers'"), "ms", None, |figures| {
            part(figures, |processor| processor.controller)
        });
        self.add(&format!("{who}: of it all nodes'"), "ms", None, |figures| {
            part(figures, |processor| processor.node)
        });
    }

    fn crowd(&mut self, who: &str) {
        for (step, what) in [
            (Step::Bind, "until all are bound"),
            (Step::Attach, "until all are attached"),
            (Step::Use, "first claim until all are attached"),
            (Step::Detach, "until all are detached"),
            (Step::Delete, "until all are gone from Kubernetes"),
        ] {
            let goal = (step == Step::Attach).then_some(Goal::Share(1.0));
            self.add(&format!("{who}: {what}"), "s", goal, |figures| {
                Some(figures.crowd.as_ref()?.all(step)?.as_secs_f64())
            });
        }
        self.add(
            &format!("{who}: until all are gone from Cinder"),
            "s",
            None,
            |figures| Some(figures.crowd.as_ref()?.cleared?.as_secs_f64()),
        );
    }

    fn role(&mut self, name: &str, most: f64, of: fn(Roles<Memory>) -> Memory) {
        let goal = Some(Goal::AtMost(most));
        for (when, memory) in [
            (
                "after the start",
                (|figures| figures.idle) as fn(&Figures) -> Roles<Memory>,
            ),
            ("in the end", |figures| figures.loaded),
        ] {
            self.add(&format!("{name}: resident memory {when}"), "MiB", goal, |figures| {
                Some(mib(of(memory(figures)).now))
            });
            let what = format!("{name}: the same with shared pages divided (Pss)");
            self.add(&what, "MiB", None, |figures| Some(mib(of(memory(figures)).share)));
        }
        self.add(
            &format!("{name}: resident memory, most so far"),
            "MiB",
            goal,
            |figures| Some(mib(of(figures.loaded).most)),
        );
    }
}

fn rows(ours: &Figures, go: &Figures) -> Vec<Row> {
    let mut rows = Rows {
        ours,
        go,
        taken: Vec::new(),
    };
    rows.claims("one claim", ALONE, |figures| Some(&figures.alone));
    if let Some(crowd) = &ours.crowd {
        let who = format!("{} at once", crowd.lives.count);
        rows.claims(&who, CROWD, |figures| figures.crowd.as_ref());
        rows.crowd(&who);
    }
    rows.role("controller", 13.0, |roles| roles.controller);
    rows.role("node", 8.0, |roles| roles.node);
    rows.add("controllers: processor time of an idle minute", "ms", None, |figures| {
        Some(ms(figures.minute?.controller))
    });
    rows.add("nodes: processor time of an idle minute", "ms", None, |figures| {
        Some(ms(figures.minute?.node))
    });
    rows.add("the operator's OpenStack calls meanwhile", "", None, |figures| {
        let crowd = figures.crowd.as_ref().map_or(0, |crowd| crowd.operator);
        Some(count(figures.alone.operator + crowd))
    });
    rows.taken
}
