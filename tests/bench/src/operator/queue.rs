// SPDX-License-Identifier: Apache-2.0
//! Queue times of reconciles, from the operator's metrics.

const FAMILY: &str = "cinder_csi_operator_queue_duration_seconds";

/// A histogram of queue times.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Queue {
    count: f64,
    /// Sum of all times in seconds.
    sum: f64,
    /// Cumulative buckets: upper bounds in seconds, ascending, and counts.
    buckets: Vec<(f64, f64)>,
}

impl Queue {
    /// Parses the text of `/metrics`. A missing family counts as empty.
    pub(super) fn read(text: &str) -> Self {
        let mut queue = Self::default();
        for line in text.lines() {
            let Some(sample) = line.strip_prefix(FAMILY) else {
                continue;
            };
            let Some((series, value)) = sample.rsplit_once(' ') else {
                continue;
            };
            let Ok(value) = value.parse() else { continue };
            let bound = series
                .strip_prefix("_bucket{le=\"")
                .and_then(|le| le.strip_suffix("\"}"));
            match (series, bound.and_then(|bound| bound.parse().ok())) {
                ("_count", _) => queue.count = value,
                ("_sum", _) => queue.sum = value,
                (_, Some(bound)) => queue.buckets.push((bound, value)),
                _ => {}
            }
        }
        queue
    }

    /// Returns the growth since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let known = |bound: f64| before.buckets.iter().find(|(other, _)| *other >= bound);
        let buckets = self.buckets.iter().map(|(bound, count)| {
            let known = known(*bound).map_or(0.0, |(_, count)| *count);
            (*bound, count - known)
        });
        Self {
            count: self.count - before.count,
            sum: self.sum - before.sum,
            buckets: buckets.collect(),
        }
    }

    /// Returns the mean in seconds; `None` if the histogram is empty.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// Returns an upper bound in seconds of this quantile. It is the bound of a bucket, so the real time may be
    /// shorter.
    pub(super) fn bound(&self, share: f64) -> Option<f64> {
        let enough = |(_, count): &&(f64, f64)| self.count > 0.0 && *count >= self.count * share;
        self.buckets.iter().find(enough).map(|(bound, _)| *bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(counts: [u32; 4], sum: f64) -> String {
        let buckets = ["0.5", "1", "2.5", "+Inf"].iter().zip(counts);
        let buckets = buckets.map(|(le, count)| format!("{FAMILY}_bucket{{le=\"{le}\"}} {count}"));
        let rest = [
            format!("{FAMILY}_sum {sum}"),
            format!("{FAMILY}_count {}", counts[3]),
            "other 7".to_owned(),
        ];
        buckets.chain(rest).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn queue_growth_counts_only_new_waits() {
        let before = Queue::read(&text([90, 90, 90, 90], 9.0));
        let now = Queue::read(&text([92, 99, 100, 100], 17.0));
        let waits = now.since(&before);
        assert_eq!(waits.mean(), Some(0.8));
        assert_eq!((waits.bound(0.9), waits.bound(0.99)), (Some(1.0), Some(2.5)));
        let none = now.since(&now);
        assert_eq!((none.mean(), none.bound(0.99)), (None, None));
        assert_eq!(Queue::read("other 7\n"), Queue::default());
    }
}
