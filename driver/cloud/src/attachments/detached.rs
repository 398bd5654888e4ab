//! The detachments that this process saw the end of a moment ago. An API node whose database lags still shows what was before, so for
//! that time an attachment is not believed because it is shown.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::ids::{ServerId, VolumeId};
use crate::watch::NEW;

/// See the module. What is older than [`NEW`] goes with the next detachment.
#[derive(Debug, Default)]
pub(crate) struct DetachedLately {
    /// The oldest first.
    pairs: Mutex<VecDeque<(VolumeId, ServerId, Instant)>>,
}

impl DetachedLately {
    fn pairs(&self) -> MutexGuard<'_, VecDeque<(VolumeId, ServerId, Instant)>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, volume: &VolumeId, server: &ServerId) {
        let mut pairs = self.pairs();
        while pairs.front().is_some_and(|(.., at)| at.elapsed() >= NEW) {
            pairs.pop_front();
        }
        pairs.push_back((volume.clone(), server.clone(), Instant::now()));
    }

    pub(super) fn has(&self, volume: &VolumeId, server: &ServerId) -> bool {
        self.pairs()
            .iter()
            .any(|(of, from, at)| of == volume && from == server && at.elapsed() < NEW)
    }

    /// It was attached since.
    pub(super) fn forget(&self, volume: &VolumeId, server: &ServerId) {
        self.pairs().retain(|(of, from, _)| of != volume || from != server);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_detachment_is_remembered_for_as_long_as_a_database_may_lag_or_until_the_next_attachment() {
        let lately = DetachedLately::default();
        let (volume, server) = (VolumeId::new("volume"), ServerId::new("server"));
        lately.remember(&volume, &server);
        assert!(lately.has(&volume, &server) && !lately.has(&volume, &ServerId::new("other")));
        lately.forget(&volume, &server);
        assert!(!lately.has(&volume, &server));

        lately.remember(&volume, &server);
        tokio::time::sleep(NEW.saturating_sub(Duration::from_millis(1))).await;
        assert!(lately.has(&volume, &server));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!lately.has(&volume, &server));
        lately.remember(&VolumeId::new("later"), &server);
        assert_eq!(lately.pairs().len(), 1);
    }
}
