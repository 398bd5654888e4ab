//! Both drivers' figures side by side.

use std::fmt::Write as _;
use std::time::Duration;

use crate::measure::{Figures, Lives};
use crate::run::Plan;

/// A row: what, ours, the Go driver's.
struct Row {
    what: String,
    ours: Option<f64>,
    go: Option<f64>,
    unit: &'static str,
}

/// The table of one cloud. A ratio is ours over the Go driver's: less is better.
pub(crate) fn render(title: &str, plan: Plan, ours: &Figures, go: &Figures) -> String {
    let mut text = format!("\n{title}\n");
    let _ = writeln!(
        text,
        "  {:<52} {:>14} {:>14} {:>9}",
        "measure", "ours", "Go driver", "ratio"
    );
    for row in rows(plan, ours, go) {
        let figure =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{} {}", short(value), row.unit));
        let ratio = match (row.ours, row.go) {
            (Some(ours), Some(go)) if go > 0.0 => format!("{:.2}", ours / go),
            _ => "-".to_owned(),
        };
        let line = format!(
            "  {:<52} {:>14} {:>14} {ratio:>9}",
            row.what,
            figure(row.ours),
            figure(row.go)
        );
        let _ = writeln!(text, "{line}");
    }
    text
}

fn rows(plan: Plan, ours: &Figures, go: &Figures) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |what: &str, unit: &'static str, figure: &dyn Fn(&Figures) -> Option<f64>| {
        rows.push(Row {
            what: what.to_owned(),
            ours: figure(ours),
            go: figure(go),
            unit,
        });
    };
    let mut lives = |who: &str, of: &dyn Fn(&Figures) -> Option<Lives>| {
        add(&format!("{who}: OpenStack calls each"), "", &|figures| {
            Some(of(figures)?.requests_each())
        });
        add(&format!("{who}: failed RPCs of all"), "", &|figures| {
            Some(count(of(figures)?.failures))
        });
        add(&format!("{who}: processor time each"), "ms", &|figures| {
            Some(ms(of(figures)?.processor_each()))
        });
        add(
            &format!("{who}: an attach is noticed late by, median"),
            "ms",
            &|figures| of(figures)?.late(50).map(ms),
        );
        add(&format!("{who}: the same, 99th percentile"), "ms", &|figures| {
            of(figures)?.late(99).map(ms)
        });
    };
    lives("one life", &|figures| Some(figures.alone.clone()));
    if plan.crowd > 0 {
        lives(&format!("{} at once", plan.crowd), &|figures| figures.crowd.clone());
    }
    add("one life: seconds", "s", &|figures| {
        Some(figures.alone.wall_each().as_secs_f64())
    });
    if plan.crowd > 0 {
        let crowd = |figures: &Figures, of: fn(&Lives) -> Duration| Some(of(figures.crowd.as_ref()?).as_secs_f64());
        add("the crowd: seconds until all are attached", "s", &|figures| {
            crowd(figures, |lives| lives.attach)
        });
        add("the crowd: seconds of all lives", "s", &|figures| {
            crowd(figures, |lives| lives.wall)
        });
    }
    add("controller: resident memory after the start", "MiB", &|figures| {
        Some(mib(figures.idle.0.now))
    });
    add("controller: most so far", "MiB", &|figures| {
        Some(mib(figures.loaded.0.most))
    });
    add("node: resident memory after the start", "MiB", &|figures| {
        Some(mib(figures.idle.1.now))
    });
    add("node: most so far", "MiB", &|figures| Some(mib(figures.loaded.1.most)));
    add("binary", "MB", &|figures| Some(count_u64(figures.binary) / 1e6));
    rows
}

fn short(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn mib(kib: u64) -> f64 {
    count_u64(kib) / 1024.0
}

#[expect(clippy::cast_precision_loss, reason = "figures of a bench have few digits")]
fn count(value: usize) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "figures of a bench have few digits")]
fn count_u64(value: u64) -> f64 {
    value as f64
}
