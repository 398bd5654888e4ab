//! The operator's figures.

use std::fmt::Write as _;

use super::{Figures, Scale};
use crate::table::{mib, short};

/// Less than this is wanted, in MiB.
const MEMORY: f64 = 64.0;
/// Less than this is wanted, in seconds.
const REACTION: f64 = 5.0;

/// The table.
pub(crate) fn render(scale: Scale, figures: &Figures) -> String {
    let Figures { listed, changed, .. } = figures;
    let mut text = format!("\nOperator ({scale})\n");
    line(&mut text, ["measure", "operator", "goal", ""]);
    let (mut met, mut judged) = (0, 0);
    let mut add = |what: &str, value: f64, unit: &str, goal: Option<f64>| {
        let verdict = goal.map(|goal| value < goal);
        judged += usize::from(verdict.is_some());
        met += usize::from(verdict == Some(true));
        let goal = goal.map(|goal| format!("< {}", short(goal))).unwrap_or_default();
        let verdict = verdict.map_or("", |met| if met { "met" } else { "not met" });
        line(&mut text, [what, &format!("{} {unit}", short(value)), &goal, verdict]);
    };
    for (when, memory) in [("when all is listed", listed), ("after the change", changed)] {
        add(&format!("resident memory {when}"), mib(memory.now), "MiB", Some(MEMORY));
        add(
            "  of it its own, not the program's file",
            mib(memory.anonymous),
            "MiB",
            None,
        );
        add("  with shared pages divided (Pss)", mib(memory.share), "MiB", None);
    }
    add("resident memory, most so far", mib(changed.most), "MiB", Some(MEMORY));
    add(
        "from its start to the last operand made",
        figures.install.as_secs_f64(),
        "s",
        None,
    );
    add(
        "from a changed spec to the last operand written",
        figures.reaction.as_secs_f64(),
        "s",
        Some(REACTION),
    );
    #[expect(clippy::cast_precision_loss, reason = "figures of a bench have few digits")]
    add("binary", figures.binary as f64 / 1e6, "MB", None);
    let _ = writeln!(text, "  goals met: {met} of {judged}");
    let _ = writeln!(text, "\n  written after the change, by the API server's audit log");
    for write in &figures.writes {
        let _ = writeln!(text, "    {write}");
    }
    text
}

fn line(text: &mut String, [what, figure, goal, verdict]: [&str; 4]) {
    let line = format!("  {what:<52} {figure:>12} {goal:>7} {verdict}");
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::Memory;

    #[test]
    fn a_goal_is_met_below_its_limit_and_not_at_it() {
        let memory = |mib: u64| Memory {
            now: mib * 1024,
            most: mib * 1024,
            ..Memory::default()
        };
        let figures = Figures {
            listed: memory(63),
            changed: memory(64),
            install: Duration::from_secs(1),
            reaction: Duration::from_millis(4_999),
            writes: vec!["patch daemonsets x".to_owned()],
            binary: 1,
        };
        let scale = Scale {
            nodes: 1,
            volumes: 2,
            pods: 3,
        };
        let text = render(scale, &figures);
        assert!(text.contains("goals met: 2 of 4"), "{text}");
        assert!(text.contains("patch daemonsets x"), "{text}");
    }
}
