//! The attachments for writing that this process made, or found made.
//!
//! No mark of another mode is at these (see [`crate::readonly`]), which saves a look at each detachment. And external-attacher asks
//! for an attachment once more when it has not seen its own note of the answer: what was seen complete a moment ago is told from
//! memory, which is no older than a look whose answer took that moment to arrive; what was seen a while ago is told by one look.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cloud::Attached;
use crate::ids::{ServerId, VolumeId};

/// How many attachments are remembered; then the memory starts anew, which costs a look for each that is forgotten.
const REMEMBERED: usize = 10_000;
/// How many answers are kept whole: as many as come within [`A_MOMENT`] from a busy cloud.
const KEPT: usize = 256;
/// How long an answer is as good as a look.
const A_MOMENT: Duration = Duration::from_secs(1);
/// How long an attachment that Cinder still shows needs no second look at Nova's record of it.
const A_WHILE: Duration = Duration::from_secs(10);

type Pair = (VolumeId, ServerId);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Made {
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// The id of each attachment, where Cinder gives them ids, and when it was seen complete.
    attachments: HashMap<Pair, (Option<String>, Instant)>,
    /// The latest answers, the oldest first.
    answers: VecDeque<(Pair, Attached, Instant)>,
}

impl Made {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attachment was seen complete by Nova's account and Cinder's just now.
    pub(crate) fn remember(&self, volume: &VolumeId, server: &ServerId, attachment: Option<&str>, answer: &Attached) {
        let (pair, now) = ((volume.clone(), server.clone()), Instant::now());
        let mut memory = self.memory();
        if memory.attachments.len() >= REMEMBERED {
            memory.attachments.clear();
        }
        memory
            .attachments
            .insert(pair.clone(), (attachment.map(str::to_owned), now));
        memory
            .answers
            .retain(|(of, _, at)| *of != pair && at.elapsed() < A_MOMENT);
        if memory.answers.len() >= KEPT {
            memory.answers.pop_front();
        }
        memory.answers.push_back((pair, answer.clone(), now));
    }

    /// Whether it was known; it is not any more.
    pub(crate) fn forget(&self, volume: &VolumeId, server: &ServerId) -> bool {
        let pair = (volume.clone(), server.clone());
        let mut memory = self.memory();
        memory.answers.retain(|(of, ..)| *of != pair);
        memory.attachments.remove(&pair).is_some()
    }

    /// This process is about to detach the volume: of it, nothing is told from memory.
    pub(crate) fn let_go(&self, volume: &VolumeId) {
        self.memory().answers.retain(|((of, _), ..)| of != volume);
    }

    /// The answer of a moment ago.
    pub(crate) fn answer(&self, volume: &VolumeId, server: &ServerId) -> Option<Attached> {
        let memory = self.memory();
        let mut answers = memory.answers.iter();
        let (_, answer, _) =
            answers.find(|((of, at), _, since)| of == volume && at == server && since.elapsed() < A_MOMENT)?;
        Some(Attached {
            already: true,
            ..answer.clone()
        })
    }

    /// The id of the attachment that came to be a little while ago.
    pub(crate) fn lately(&self, volume: &VolumeId, server: &ServerId) -> Option<String> {
        let memory = self.memory();
        let (attachment, at) = memory.attachments.get(&(volume.clone(), server.clone()))?;
        attachment.clone().filter(|_| at.elapsed() < A_WHILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(number: usize) -> Pair {
        (VolumeId::new(format!("volume-{number}")), ServerId::new("server"))
    }

    fn attached() -> Attached {
        Attached {
            device: Some("/dev/vdb".to_owned()),
            volume: None,
            already: false,
        }
    }

    fn remember(made: &Made, number: usize) {
        let (volume, server) = pair(number);
        made.remember(&volume, &server, Some("attachment"), &attached());
    }

    fn knows(made: &Made, number: usize) -> (bool, bool) {
        let (volume, server) = pair(number);
        (
            made.answer(&volume, &server).is_some_and(|answer| answer.already),
            made.lately(&volume, &server).is_some(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_moment_and_an_attachment_for_a_while() {
        let made = Made::default();
        remember(&made, 1);
        assert_eq!(knows(&made, 1), (true, true));
        assert_eq!(knows(&made, 2), (false, false));
        tokio::time::advance(A_MOMENT).await;
        assert_eq!(knows(&made, 1), (false, true));
        tokio::time::advance(A_WHILE).await;
        assert_eq!(knows(&made, 1), (false, false));
        let (volume, server) = pair(1);
        assert!(made.forget(&volume, &server) && !made.forget(&volume, &server));
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_volume_that_is_let_go_nothing_is_told_without_a_look() {
        let made = Made::default();
        remember(&made, 1);
        remember(&made, 2);
        made.let_go(&pair(1).0);
        assert_eq!((knows(&made, 1), knows(&made, 2)), ((false, true), (true, true)));
        let (volume, server) = pair(2);
        assert!(made.forget(&volume, &server));
        assert_eq!(knows(&made, 2), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_are_remembered_and_no_more() {
        let made = Made::default();
        for number in 0..=KEPT {
            remember(&made, number);
        }
        assert_eq!(knows(&made, 0), (false, true));
        assert_eq!((knows(&made, 1), knows(&made, KEPT)), ((true, true), (true, true)));
        for number in 0..=REMEMBERED {
            remember(&made, number);
        }
        assert!(made.memory().attachments.len() <= REMEMBERED && made.memory().answers.len() <= KEPT);
    }
}
