// SPDX-License-Identifier: Apache-2.0
//! Logs a repeated failure once.

use parking_lot::Mutex;

/// The last logged reason of a failure. A client that repeats a request must not fill the log.
#[derive(Debug, Default)]
pub struct ReasonLog(Mutex<Option<String>>);

impl ReasonLog {
    /// Records a failure. Returns whether its reason differs from the previous one.
    pub fn is_news(&self, reason: &str) -> bool {
        let mut last = self.0.lock();
        let is_news = last.as_deref() != Some(reason);
        if is_news {
            *last = Some(reason.to_owned());
        }
        is_news
    }

    /// Clears the recorded failure, so that the next failure is logged.
    pub fn clear(&self) {
        self.0.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_each_change_of_reason_once() {
        let log = ReasonLog::default();
        let news = ["a", "a", "b", "b", "a"].map(|reason| log.is_news(reason));
        assert_eq!(news, [true, false, true, false, true]);
        log.clear();
        assert!(log.is_news("a"));
    }
}
