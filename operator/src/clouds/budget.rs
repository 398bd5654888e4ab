//! One budget for all requests to the clouds of a driver: a bucket that fills at a steady pace.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cinder_cloud::Observer;
use tokio::time::Instant;

use crate::metrics::Metrics;

const MINUTE: f64 = 60.0;

/// How many requests may be made. Every request is taken off, also those that nobody could wait with; who can wait does.
#[derive(Debug)]
pub struct Budget {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    per_minute: f64,
    left: f64,
    at: Instant,
}

impl State {
    fn fill(&mut self) {
        let now = Instant::now();
        let more = now.duration_since(self.at).as_secs_f64() / MINUTE * self.per_minute;
        self.left = (self.left + more).min(self.per_minute);
        self.at = now;
    }
}

impl Budget {
    /// A full one.
    pub fn new(per_minute: u32) -> Self {
        Self {
            state: Mutex::new(State {
                per_minute: per_minute.into(),
                left: per_minute.into(),
                at: Instant::now(),
            }),
        }
    }

    /// Another pace from now on.
    pub fn set_pace(&self, per_minute: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.fill();
        state.per_minute = per_minute.into();
        state.left = state.left.min(state.per_minute);
    }

    /// One request was made.
    pub fn spend(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.fill();
        state.left -= 1.0;
    }

    /// How many requests may be made now; negative when more were made than there should have been.
    pub fn left(&self) -> f64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.fill();
        state.left
    }

    /// Waits until a request may be made; `false` when that takes longer than `limit`.
    pub async fn wait(&self, limit: Duration) -> bool {
        let pause = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.fill();
            let missing = (1.0 - state.left).max(0.0);
            Duration::try_from_secs_f64(missing / state.per_minute * MINUTE).unwrap_or(limit)
        };
        if pause > limit {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}

/// Hears of every request to a cloud: counts it and takes it off the budget.
#[derive(Debug)]
pub struct Spending {
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Pays.
    pub budget: Arc<Budget>,
}

impl Observer for Spending {
    fn request(&self, service: &'static str, operation: &'static str, code: u16, elapsed: Duration) {
        self.budget.spend();
        self.metrics.request(service, operation, code, elapsed);
    }

    fn token_issued(&self, ok: bool) {
        self.metrics.token_issued(ok);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_spent_all_waits_for_his_share_and_not_longer_than_he_wants() {
        let budget = Budget::new(60);
        for _ in 0..60 {
            assert!(budget.wait(Duration::ZERO).await);
            budget.spend();
        }
        assert!(!budget.wait(Duration::from_millis(500)).await);
        let before = Instant::now();
        assert!(budget.wait(Duration::from_secs(2)).await);
        assert_eq!(
            before.elapsed().as_millis().div_ceil(100),
            10,
            "one second for one of sixty per minute"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_wait_is_paid_back_and_a_pause_saves_no_more_than_a_minute_gives() {
        let budget = Budget::new(10);
        for _ in 0..20 {
            budget.spend();
        }
        assert!(budget.left() < -9.0);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!((budget.left() - 10.0).abs() < 0.01);
        budget.set_pace(5);
        assert!((budget.left() - 5.0).abs() < 0.01);
    }
}
