// SPDX-License-Identifier: Apache-2.0
//! Sources of wall time, random numbers and ids: the system, or a seed. Also reads configuration files.
//!
//! Code that needs time or randomness receives [`Sources`], and uses no other source. Monotonic time is
//! [`tokio::time::Instant`], which stops on tokio's paused clock. The wall time of seeded sources follows that clock. A
//! test that pauses the clock and seeds the sources is therefore reproducible.
//!
//! [`UntrustedText`] displays text of other programs and users. It is part of this crate because every crate may depend
//! on it.

mod untrusted_text;

pub mod files;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

pub use untrusted_text::{UntrustedText, escape_json, is_printable};

/// Wall time, random numbers and ids. Cheap to clone; clones of seeded sources share one sequence.
#[derive(Debug, Clone, Default)]
pub struct Sources(Kind);

#[derive(Debug, Clone, Default)]
enum Kind {
    #[default]
    System,
    SeededSource(Arc<SeededSource>, SignedDuration),
}

#[derive(Debug)]
struct SeededSource {
    start: Timestamp,
    began: Instant,
    state: AtomicU64,
}

impl Sources {
    /// Uses the clock and the random numbers of the system.
    pub fn system() -> Self {
        Self(Kind::System)
    }

    /// Uses the random sequence of `seed`, and a wall time that is `start` now and follows tokio's clock.
    ///
    /// Must be called inside the runtime whose clock it follows.
    pub fn seeded(seed: u64, start: Timestamp) -> Self {
        Self(Kind::SeededSource(
            Arc::new(SeededSource {
                start,
                began: Instant::now(),
                state: AtomicU64::new(seed),
            }),
            SignedDuration::ZERO,
        ))
    }

    /// Returns the same sources with a wall clock that is wrong by `error`. Does not change the system's clock.
    #[must_use]
    pub fn shifted(&self, error: SignedDuration) -> Self {
        match &self.0 {
            Kind::System => self.clone(),
            Kind::SeededSource(seeded, _) => Self(Kind::SeededSource(Arc::clone(seeded), error)),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the source that other code uses")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Kind::System => Timestamp::now(),
            // The maximum is out of reach for tests.
            Kind::SeededSource(seeded, error) => {
                let now = (seeded.start.checked_add(seeded.began.elapsed())).and_then(|now| now.checked_add(*error));
                now.unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Returns a random number. It is suitable for jitter and for unique names, not for secrets.
    #[expect(clippy::disallowed_methods, reason = "this is the source that other code uses")]
    pub fn random(&self) -> u64 {
        match &self.0 {
            // Each state has a random key, which is sufficient for jitter.
            Kind::System => RandomState::new().build_hasher().finish(),
            Kind::SeededSource(seeded, _) => seeded.next(),
        }
    }

    /// Returns a new UUID of version 4.
    #[expect(clippy::disallowed_methods, reason = "this is the source that other code uses")]
    pub fn uuid(&self) -> Uuid {
        match &self.0 {
            Kind::System => Uuid::new_v4(),
            Kind::SeededSource(seeded, _) => {
                let (high, low) = (seeded.next(), seeded.next());
                let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
                uuid::Builder::from_random_bytes(bytes).into_uuid()
            }
        }
    }
}

impl SeededSource {
    /// SplitMix64, the generator of Java's `SplittableRandom` (Steele, Lea and Flood, OOPSLA 2014), with the constants of
    /// Vigna's public-domain `splitmix64.c`.
    fn next(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn start() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().expect("a time")
    }

    #[tokio::test(start_paused = true)]
    async fn seeded_wall_time_follows_the_paused_clock() {
        let sources = Sources::seeded(1, start());
        assert_eq!(sources.now(), start());
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(sources.now().to_string(), "2026-01-02T04:04:05Z");
    }

    #[tokio::test(start_paused = true)]
    async fn seed_determines_sequence() {
        let draw = |seed| {
            let sources = Sources::seeded(seed, start());
            (sources.random(), sources.uuid(), sources.clone().random())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[tokio::test(start_paused = true)]
    async fn matches_published_splitmix64_numbers() {
        let sources = Sources::seeded(1_234_567, start());
        let drawn = [sources.random(), sources.random(), sources.random()];
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn both_sources_generate_uuids_v4() {
        for sources in [Sources::system(), Sources::seeded(1, start())] {
            let (one, other) = (sources.uuid(), sources.uuid());
            assert_ne!(one, other);
            assert_eq!((one.get_version_num(), one.get_variant()), (4, uuid::Variant::RFC4122));
        }
    }

    #[tokio::test]
    async fn system_numbers_differ() {
        let sources = Sources::system();
        assert_ne!(sources.random(), sources.random());
    }
}
