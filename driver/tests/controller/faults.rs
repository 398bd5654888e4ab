// SPDX-License-Identifier: Apache-2.0
//! Tests each RPC with every fault of the cloud: the code that the sidecars act on, and the message.
//!
//! The fault affects the request that changes something (for read-only RPCs, their query), and persists. An RPC that
//! may have created an object never returns a code that excludes this. An error contains the object, the last response
//! of the cloud with its status and request id, and the elapsed time.

mod attachments;
mod changes;
mod groups;
mod out_of_time;
mod reads;
mod snapshots;
mod volumes;

use std::time::Duration;

use openstack_sim::{Effect, Fault, Sim, When};
use tonic::{Code, Status};

use crate::support::{Driver, cloud};

/// The timeout of one attempt at a request. It is short, so that a time-out occurs soon.
const REQUEST: Duration = Duration::from_secs(2);
/// The timeout of a call. It suffices for all attempts, so that the response reports the result.
const CALL: Duration = Duration::from_mins(1);

/// A fault, and the part of it that an error must contain.
struct FaultCase {
    name: &'static str,
    effect: Effect,
    /// The status of the cloud's response, if there is one.
    status: Option<u16>,
}

fn fault_cases() -> Vec<FaultCase> {
    let answered = |name, status, effect| FaultCase {
        name,
        effect,
        status: Some(status),
    };
    let lost = |name, effect| FaultCase {
        name,
        effect,
        status: None,
    };
    let policy = "Policy doesn't allow this to be performed.";
    let quota = "Quota exceeded for volumes: Requested 1, but already used 10 of 10 volumes";
    let room = "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.";
    vec![
        answered("400", 400, Effect::status(400)),
        answered("401", 401, Effect::status(401)),
        answered("403 policy", 403, Effect::status(403).message(policy)),
        answered("403 quota", 403, Effect::status(403).message(quota)),
        answered("404", 404, Effect::status(404)),
        answered("409", 409, Effect::status(409)),
        answered("413 quota", 413, Effect::status(413).message(room)),
        answered("429", 429, Effect::status(429).retry_after(5)),
        answered("500", 500, Effect::status(500)),
        answered("500 after", 500, Effect::status_after(500)),
        answered("503", 503, Effect::status(503).retry_after(5)),
        lost("time-out", Effect::delay(Duration::from_hours(1))),
        lost("reset", Effect::reset(When::Before)),
        lost("reset after", Effect::reset(When::After)),
        answered("truncated", 200, Effect::Truncated),
        // A gateway sends this response. It is not a service and has no request ids.
        answered("html 200", 200, Effect::html(200)),
        answered("html 502", 502, Effect::html(502)),
    ]
}

/// The expected codes by the names of faults.
type Codes = &'static [(&'static str, Code)];

/// For an RPC that creates an object, which the driver finds by its name if the cloud created it.
const CREATING: Codes = &[
    ("400", Code::InvalidArgument),
    ("403 quota", Code::ResourceExhausted),
    ("404", Code::NotFound),
    ("409", Code::Aborted),
    ("413 quota", Code::ResourceExhausted),
    ("500 after", Code::Ok),
    ("reset after", Code::Ok),
    ("truncated", Code::Ok),
];

/// For an RPC that changes or deletes an object. The driver detects changes that the cloud executed nevertheless.
const CHANGING: Codes = &[
    ("400", Code::Internal),
    ("403 policy", Code::PermissionDenied),
    ("403 quota", Code::ResourceExhausted),
    ("404", Code::NotFound),
    ("409", Code::Aborted),
    ("413 quota", Code::ResourceExhausted),
    ("500", Code::Internal),
    ("500 after", Code::Ok),
    ("reset after", Code::Ok),
    ("truncated", Code::Ok),
    ("html 200", Code::Internal),
];

/// For a read-only RPC.
const READING: Codes = &[
    ("400", Code::Internal),
    ("403 policy", Code::PermissionDenied),
    ("403 quota", Code::ResourceExhausted),
    ("404", Code::NotFound),
    ("409", Code::Aborted),
    ("413 quota", Code::ResourceExhausted),
    ("500", Code::Internal),
    ("500 after", Code::Internal),
    ("truncated", Code::Internal),
    ("html 200", Code::Internal),
];

/// The expected code of a fault: the codes of a kind of RPC, and the exceptions of this RPC. The default is
/// `UNAVAILABLE`.
#[derive(Clone, Copy)]
struct Expected(Codes, Codes);

impl Expected {
    fn of(self, case: &str) -> Code {
        let Self(usual, own) = self;
        let found = own.iter().chain(usual).find(|(name, _)| *name == case);
        found.map_or(Code::Unavailable, |(_, code)| *code)
    }
}

/// Runs `call` once for each fault of `operation`, each with a new cloud and driver, and checks code and message.
///
/// `prepare` returns the object of the call: its id, its name if it is not created yet, or an empty text for a list.
async fn over_all_faults(
    operation: &str,
    expected: Expected,
    prepare: impl AsyncFn(&Sim, &Driver) -> String,
    call: impl AsyncFn(&Driver, String) -> Result<(), Status>,
) {
    let known: Vec<&str> = fault_cases().iter().map(|case| case.name).collect();
    let mut named = expected.0.iter().chain(expected.1);
    let misspelt = named.find(|(name, _)| !known.contains(name));
    assert!(misspelt.is_none(), "{misspelt:?}");
    let (prepare, call) = (&prepare, &call);
    let over = fault_cases()
        .into_iter()
        .map(|case| async move { over_one(operation, case, expected, prepare, call).await });
    let wrong: Vec<String> = futures::future::join_all(over).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{operation}:\n{}", wrong.join("\n"));
}

async fn over_one(
    operation: &str,
    case: FaultCase,
    expected: Expected,
    prepare: &impl AsyncFn(&Sim, &Driver) -> String,
    call: &impl AsyncFn(&Driver, String) -> Result<(), Status>,
) -> Option<String> {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| args.request_timeout = REQUEST);
    let object = prepare(&sim, &driver).await;
    sim.clear_log();
    let html = matches!(case.effect, Effect::Html { .. });
    sim.fault(Fault::on(operation).effect(case.effect)).expect("a fault");
    let (code, message) = match call(&driver, object.clone()).await {
        Ok(()) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    };
    let name = case.name;
    let right = expected.of(name);
    if code != right {
        return Some(format!("{name}: {code:?} and not {right:?}: {message}"));
    }
    let met = name == "time-out" || sim.log().iter().any(|entry| entry.operation == operation);
    if !met {
        return Some(format!("{name}: {operation} was never asked for"));
    }
    if code == Code::Ok {
        return None;
    }
    let lacking = missing_parts(&message, &object, case.status, html);
    (!lacking.is_empty()).then(|| format!("{name}: {} not told in: {message}", lacking.join(", ")))
}

/// Returns the parts that an error should contain but does not.
fn missing_parts(message: &str, object: &str, status: Option<u16>, html: bool) -> Vec<String> {
    let mut lacking = Vec::new();
    let mut must = |what: String, is_described: bool| {
        if !is_described {
            lacking.push(what);
        }
    };
    must(format!("the object {object}"), message.contains(object));
    let absence = message.contains("does not exist");
    if let Some(status) = status {
        let is_described = match status {
            // The message describes this status in text.
            404 => true,
            // A successful response with an unreadable body.
            200 => message.contains("HTTP 20"),
            _ => message.contains(&format!("HTTP {status}")),
        };
        must(format!("status {status}"), is_described);
        must("the request id".to_owned(), html || message.contains("req-"));
    }
    must("the time that it took".to_owned(), absence || tells_a_time(message));
    lacking
}

/// Whether the text contains a duration such as `after 1.5 s`.
fn tells_a_time(message: &str) -> bool {
    message.split("after ").skip(1).any(|rest| {
        let number: String = rest
            .chars()
            .take_while(|character| character.is_ascii_digit() || *character == '.')
            .collect();
        number.parse::<f64>().is_ok() && rest[number.len()..].starts_with(" s")
    })
}

/// The call needs no existing object.
async fn nothing(_: &Sim, _: &Driver) -> String {
    String::new()
}

async fn volume(_: &Sim, driver: &Driver) -> String {
    driver.volume("pvc-1").await
}
