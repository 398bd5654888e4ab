// SPDX-License-Identifier: Apache-2.0
//! Every interval, timeout and retry of this crate.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Timing {
    /// No first look comes sooner than this after a request.
    pub(crate) first_poll_min: Duration,
    /// No first look comes later: one slow operation must not make the next, quick one late.
    pub(crate) first_poll_max: Duration,
    /// The shortest gap between looks at one thing.
    pub(crate) poll_gap_min: Duration,
    /// The longest gap between looks in the first minute.
    pub(crate) poll_gap_max: Duration,
    /// The longest gap between looks at one thing, reached after five minutes.
    pub(crate) poll_gap_old_max: Duration,
    /// How long one HTTP exchange may take, where the options do not say it.
    pub(crate) request_timeout: Duration,
    /// How long one operation may take with all its waits, where the options do not say it.
    pub(crate) operation_timeout: Duration,
    /// How long a volume may be on its way to or from a server before the operation ends with an error, where the options do
    /// not say it.
    pub(crate) stuck_after: Duration,
    /// A token is renewed this long before its end, or at 4/5 of its life where that is shorter.
    pub(crate) token_renewal: Duration,
    /// After a failed renewal of a token that still works, the next attempt waits this long.
    pub(crate) token_renewal_retry: Duration,
    /// How long a TCP and TLS connection may take to come up.
    pub(crate) connect_timeout: Duration,
    /// How long the resolution of a host name may take. It is part of `connect_timeout`.
    pub(crate) name_lookup_timeout: Duration,
    /// How long one name server may take to answer. `/etc/resolv.conf` may set a shorter time.
    pub(crate) name_query_timeout: Duration,
    /// After this time without an answer the next name server is queried too.
    pub(crate) name_server_patience: Duration,
    /// How long IPv4 addresses wait for the AAAA query.
    pub(crate) ipv6_patience: Duration,
    /// The pause before a request is repeated; each is twice as long as the one before, up to the longest.
    pub(crate) request_retry_first: Duration,
    /// The longest pause before a request is repeated.
    pub(crate) request_retry_max: Duration,
    /// The longest pause that a service may request. A probe finds out whether it still needs one.
    pub(crate) throttle_max: Duration,
    /// Over how long those come back that waited for the end of a pause, so that they do not come all at once.
    pub(crate) throttle_spread: Duration,
    /// How long what was just made may be unknown to an API node whose database lags.
    pub(crate) database_lag: Duration,
    /// Between two lists of changes, and between two looks at one thing for which several wait.
    pub(crate) shared_poll_interval: Duration,
    /// The same while one of them is an attachment, for which a pod waits.
    pub(crate) shared_poll_interval_attach: Duration,
    /// How long one poll may take. The next poll starts a new request.
    pub(crate) poll_timeout: Duration,
    /// A poll that takes longer is slow: it gives its permit to others.
    pub(crate) slow_poll: Duration,
    /// How long no list of changes is requested after lists have failed.
    pub(crate) list_rest: Duration,
    /// What is made changes when it is given a place, and once more when it is complete: until then no list shows it.
    pub(crate) unlisted_creation: Duration,
    /// What is waited for longer is looked at directly, so that the list of changes stays short.
    pub(crate) list_horizon: Duration,
    /// The largest difference between Cinder's clock and ours that is believed.
    pub(crate) clock_difference_max: jiff::SignedDuration,
    /// How far apart the clocks of Cinder's processes may be.
    pub(crate) clock_skew: jiff::SignedDuration,
    /// How long an attachment that was seen complete needs no more than a look at its volume.
    pub(crate) attached_ttl: Duration,
    /// How long a deleted volume is known to be gone without asking.
    pub(crate) deleted_ttl: Duration,
    /// How long names of dependents are repeated.
    pub(crate) dependents_ttl: Duration,
    /// How long a list is good: sidecars that begin a walk together share one.
    pub(crate) volume_list_ttl: Duration,
    /// How long the servers' list is good: it tells of trouble, which does not pass in seconds.
    pub(crate) server_list_ttl: Duration,
    /// How long what was read of quotas, pools, zones and types is good.
    pub(crate) cloud_facts_ttl: Duration,
    /// How long a refusal to show the pools is remembered: roles change seldom.
    pub(crate) pools_refusal_ttl: Duration,
    /// How long an operation that somebody else began may stand in the way.
    pub(crate) settle_timeout: Duration,
    /// After an uncertain answer to a creation, the name is looked up after each of these pauses: Cinder may still be at it.
    pub(crate) name_lookups: [Duration; 4],
    /// How long the removal of a volume, a snapshot or a backup that failed to be made may take.
    pub(crate) clean_up_timeout: Duration,
    /// A volume whose record changed last within this time after it was made, and that is in error now, failed while it was
    /// made. One that has been of use for longer and failed then is never taken for that.
    pub(crate) creation_window: Duration,
    /// A server that Nova does not show so long after its volume was reserved is gone, and not about to come.
    pub(crate) unseen_server: jiff::SignedDuration,
    /// Cinder's timestamps are whole seconds.
    pub(crate) timestamp_resolution: Duration,
    /// How much is lost to whole seconds, in Cinder's times and in its clock.
    pub(crate) whole_seconds: Duration,
    /// The pause before a request to a busy server is made anew, growing by the round.
    pub(crate) busy_server_retry: Duration,
    /// How long what looks left over is left alone before it is looked at again: Nova may be cleaning up.
    pub(crate) orphan_grace: Duration,
    /// Between looks at an attachment that is shown and may be past.
    pub(crate) stale_attachment_recheck: Duration,
    /// How long a volume may be on its way to or from a server before that is trouble: the slowest clouds need less.
    pub(crate) slow_attachment: jiff::SignedDuration,
    /// How often a detachment is looked at in Cinder: only there it shows that Nova has given it up, or that the volume has
    /// vanished.
    pub(crate) detach_volume_poll: Duration,
    /// The first pause; each is half as long again as the one before, up to the longest.
    pub(crate) group_poll_first: Duration,
    /// The longest pause between looks at a group.
    pub(crate) group_poll_max: Duration,
    /// Between looks for what is not shown yet.
    pub(crate) unshown_recheck: Duration,
    /// The pause before a deletion that was refused is asked for again.
    pub(crate) deletion_retry: Duration,
    /// The pause before a growth that was refused is asked for again.
    pub(crate) expand_retry: Duration,
    /// A list that takes longer is slow: many callers do not wait for its end.
    pub(crate) slow_answer: Duration,
    /// How long a slow list is good.
    pub(crate) slow_answer_ttl: Duration,
    /// How long after its time a list is dropped.
    pub(crate) list_eviction: Duration,
}

/// What holds in the product and in tests alike.
pub(crate) const TIMING: Timing = Timing {
    first_poll_min: Duration::from_millis(20),
    first_poll_max: Duration::from_secs(3),
    poll_gap_min: Duration::from_millis(100),
    poll_gap_max: Duration::from_secs(2),
    poll_gap_old_max: Duration::from_secs(10),
    request_timeout: Duration::from_mins(1),
    operation_timeout: Duration::from_mins(10),
    stuck_after: Duration::from_secs(90),
    token_renewal: Duration::from_mins(5),
    token_renewal_retry: Duration::from_secs(15),
    connect_timeout: Duration::from_secs(10),
    name_lookup_timeout: Duration::from_secs(8),
    name_query_timeout: Duration::from_secs(5),
    name_server_patience: Duration::from_secs(1),
    ipv6_patience: Duration::from_secs(1),
    request_retry_first: Duration::from_millis(200),
    request_retry_max: Duration::from_secs(10),
    throttle_max: Duration::from_mins(5),
    throttle_spread: Duration::from_millis(500),
    database_lag: Duration::from_secs(10),
    shared_poll_interval: Duration::from_secs(1),
    shared_poll_interval_attach: Duration::from_millis(500),
    poll_timeout: Duration::from_secs(20),
    slow_poll: Duration::from_secs(2),
    list_rest: Duration::from_mins(1),
    unlisted_creation: Duration::from_secs(10),
    list_horizon: Duration::from_mins(5),
    clock_difference_max: jiff::SignedDuration::from_hours(24),
    clock_skew: jiff::SignedDuration::from_secs(30),
    attached_ttl: Duration::from_secs(10),
    deleted_ttl: Duration::from_mins(5),
    dependents_ttl: Duration::from_mins(30),
    volume_list_ttl: Duration::from_secs(5),
    server_list_ttl: Duration::from_secs(15),
    cloud_facts_ttl: Duration::from_secs(30),
    pools_refusal_ttl: Duration::from_hours(1),
    settle_timeout: Duration::from_mins(2),
    name_lookups: [
        Duration::from_millis(300),
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(4),
    ],
    clean_up_timeout: Duration::from_mins(1),
    creation_window: Duration::from_mins(15),
    unseen_server: jiff::SignedDuration::from_mins(5),
    timestamp_resolution: Duration::from_secs(1),
    whole_seconds: Duration::from_secs(2),
    busy_server_retry: Duration::from_millis(300),
    orphan_grace: Duration::from_secs(5),
    stale_attachment_recheck: Duration::from_secs(1),
    slow_attachment: jiff::SignedDuration::from_mins(5),
    detach_volume_poll: Duration::from_secs(3),
    group_poll_first: Duration::from_millis(50),
    group_poll_max: Duration::from_secs(3),
    unshown_recheck: Duration::from_millis(500),
    deletion_retry: Duration::from_secs(1),
    expand_retry: Duration::from_millis(500),
    slow_answer: Duration::from_secs(10),
    slow_answer_ttl: Duration::from_secs(90),
    list_eviction: Duration::from_secs(1),
};
