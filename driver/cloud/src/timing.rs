// SPDX-License-Identifier: Apache-2.0
//! Every interval, timeout and retry of this crate.

use std::time::Duration;

use tokio::time::Instant;

/// Returns the time `delay` after `start`, or `start` if the clock cannot represent it.
pub(crate) fn time_after(start: Instant, delay: Duration) -> Instant {
    start.checked_add(delay).unwrap_or(start)
}

#[derive(Debug)]
pub(crate) struct Timing {
    /// The minimum time from a request to the first poll.
    pub(crate) first_poll_min: Duration,
    /// The maximum time from a request to the first poll, so that one slow operation does not delay the next, fast one.
    pub(crate) first_poll_max: Duration,
    /// The minimum interval between polls of one resource.
    pub(crate) poll_gap_min: Duration,
    /// The maximum interval between polls in the first minute.
    pub(crate) poll_gap_max: Duration,
    /// The maximum interval between polls of one resource, reached after five minutes.
    pub(crate) poll_gap_old_max: Duration,
    /// The default timeout of one HTTP exchange.
    pub(crate) request_timeout: Duration,
    /// The default timeout of one operation with all its waits.
    pub(crate) operation_timeout: Duration,
    /// The default time after which a pending attachment or detachment is an error.
    pub(crate) stuck_after: Duration,
    /// A token is renewed this long before its expiry, or after 4/5 of its lifetime if that is later.
    pub(crate) token_renewal: Duration,
    /// The time until the next attempt after a failed renewal of a token that is still valid.
    pub(crate) token_renewal_retry: Duration,
    /// The timeout for a TCP and TLS connection.
    pub(crate) connect_timeout: Duration,
    /// The timeout for the resolution of a host name. It is part of `connect_timeout`.
    pub(crate) name_lookup_timeout: Duration,
    /// The timeout of one name server. `/etc/resolv.conf` may set a shorter one.
    pub(crate) name_query_timeout: Duration,
    /// After this time without a response the next name server is queried too.
    pub(crate) name_server_patience: Duration,
    /// How long IPv4 addresses wait for the AAAA query.
    pub(crate) ipv6_patience: Duration,
    /// The first pause before a retry of a request. Each further pause is twice as long, up to the maximum.
    pub(crate) request_retry_first: Duration,
    /// The maximum pause before a retry of a request.
    pub(crate) request_retry_max: Duration,
    /// The maximum pause that a service may request. After it, a probe checks whether the service still needs a pause.
    pub(crate) throttle_max: Duration,
    /// The time over which requests resume after a pause, so that they do not arrive all at once.
    pub(crate) throttle_spread: Duration,
    /// How long an API node with a lagging database may not show a new resource or state.
    pub(crate) database_lag: Duration,
    /// The interval between two lists of changes, and between two polls of a resource with several waiters.
    pub(crate) shared_poll_interval: Duration,
    /// The same if one of the waiters is an attachment, for which a pod waits.
    pub(crate) shared_poll_interval_attach: Duration,
    /// The timeout of one poll. The next poll starts a new request.
    pub(crate) poll_timeout: Duration,
    /// A poll that takes longer is slow, and releases its permit.
    pub(crate) slow_poll: Duration,
    /// How long lists of changes pause after repeated failures.
    pub(crate) list_rest: Duration,
    /// A new resource changes when Cinder schedules it, and once more when it is complete. No list of changes contains
    /// it before that.
    pub(crate) unlisted_creation: Duration,
    /// Resources of longer waits are polled directly, so that the list of changes stays short.
    pub(crate) list_horizon: Duration,
    /// The largest difference between Cinder's clock and the local clock that the driver accepts.
    pub(crate) clock_difference_max: jiff::SignedDuration,
    /// The maximum difference between the clocks of Cinder's processes.
    pub(crate) clock_skew: jiff::SignedDuration,
    /// How long a complete attachment can be confirmed by its volume alone, without a query of Nova.
    pub(crate) attached_ttl: Duration,
    /// How long a deleted volume counts as deleted without a request.
    pub(crate) deleted_ttl: Duration,
    /// How long the names of dependents are cached.
    pub(crate) dependents_ttl: Duration,
    /// How long a list of volumes is valid. Sidecars that start to page at the same time share one.
    pub(crate) volume_list_ttl: Duration,
    /// How long the list of servers is valid. It serves the volume health, which does not change within seconds.
    pub(crate) server_list_ttl: Duration,
    /// How long quotas, pools, zones and types are cached.
    pub(crate) cloud_facts_ttl: Duration,
    /// How long a refusal to show the pools is cached. Roles change rarely.
    pub(crate) pools_refusal_ttl: Duration,
    /// How long an operation that another client started may block ours.
    pub(crate) settle_timeout: Duration,
    /// The pauses before the lookups by name after an uncertain response to a creation, which Cinder may still process.
    pub(crate) name_lookups: [Duration; 4],
    /// The timeout for the removal of a volume, snapshot or backup with a failed creation.
    pub(crate) clean_up_timeout: Duration,
    /// A volume in error whose record changed last within this time after its creation has failed during the creation.
    /// A volume that failed later may contain data, and never counts as a failed creation.
    pub(crate) creation_window: Duration,
    /// A server that Nova does not show this long after its volume was reserved is deleted, and not still to be
    /// created.
    pub(crate) unseen_server: jiff::SignedDuration,
    /// The resolution of Cinder's timestamps.
    pub(crate) timestamp_resolution: Duration,
    /// The maximum rounding error of Cinder's timestamps and clock together.
    pub(crate) whole_seconds: Duration,
    /// The pause before a request to a busy server is repeated. It grows with each round.
    pub(crate) busy_server_retry: Duration,
    /// The pause before the second check of a stale attachment. Nova may be deleting it.
    pub(crate) orphan_grace: Duration,
    /// The interval between checks of an attachment that may be outdated.
    pub(crate) stale_attachment_recheck: Duration,
    /// After this time a pending attachment counts as unhealthy. The slowest clouds need less.
    pub(crate) slow_attachment: jiff::SignedDuration,
    /// The interval between polls of the volume during a detachment. Only Cinder shows that Nova has abandoned it, or
    /// that the volume has disappeared.
    pub(crate) detach_volume_poll: Duration,
    /// The first pause between polls of a group. Each further pause is 1.5 times as long, up to the maximum.
    pub(crate) group_poll_first: Duration,
    /// The maximum pause between polls of a group.
    pub(crate) group_poll_max: Duration,
    /// The interval between polls for a result that Cinder does not show yet.
    pub(crate) unshown_recheck: Duration,
    /// The pause before a refused deletion is repeated.
    pub(crate) deletion_retry: Duration,
    /// The pause before a refused expansion is repeated.
    pub(crate) expand_retry: Duration,
    /// A list that takes longer is slow. Many callers stop waiting before its end.
    pub(crate) slow_answer: Duration,
    /// How long a slow list is valid.
    pub(crate) slow_answer_ttl: Duration,
    /// How long after its expiry a list is dropped.
    pub(crate) list_eviction: Duration,
}

/// The values for the product and for tests.
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
