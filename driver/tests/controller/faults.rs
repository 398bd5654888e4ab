// SPDX-License-Identifier: Apache-2.0
//! Each RPC over every fault of the cloud: the code that the sidecars act on, and a message that tells what happened.
//!
//! The fault is that of the call which changes something (or, for RPCs that only look, of the one they look with), and it
//! lasts. An RPC that may have made something is never answered with a code that says nothing was made. A refusal names the
//! object, the cloud's last answer with its status and request id, and how long it took.

mod attachments;
mod changes;
mod groups;
mod looks;
mod out_of_time;
mod snapshots;
mod volumes;

use std::time::Duration;

use openstack_sim::{Effect, Fault, Sim, When};
use tonic::{Code, Status};

use crate::support::{Driver, cloud};

/// What one attempt at a request may take, so that the time-out comes soon.
const REQUEST: Duration = Duration::from_secs(2);
/// What a call may take: enough for all that is tried, so that its answer tells how that ended.
const CALL: Duration = Duration::from_mins(1);

/// A fault, and what of it a refusal must show.
struct Trouble {
    name: &'static str,
    effect: Effect,
    /// The status of the cloud's answer, where one comes.
    status: Option<u16>,
}

fn troubles() -> Vec<Trouble> {
    let answered = |name, status, effect| Trouble {
        name,
        effect,
        status: Some(status),
    };
    let lost = |name, effect| Trouble {
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
        // What speaks here is a gateway, and no service that has request ids.
        answered("html 200", 200, Effect::html(200)),
        answered("html 502", 502, Effect::html(502)),
    ]
}

/// Codes by the names of faults.
type Codes = &'static [(&'static str, Code)];

/// Of an RPC that makes something: what the cloud has all the same is found by its name afterwards.
const MAKING: Codes = &[
    ("400", Code::InvalidArgument),
    ("403 quota", Code::ResourceExhausted),
    ("404", Code::NotFound),
    ("409", Code::Aborted),
    ("413 quota", Code::ResourceExhausted),
    ("500 after", Code::Ok),
    ("reset after", Code::Ok),
    ("truncated", Code::Ok),
];

/// Of an RPC that changes or removes something: what the cloud has done all the same is seen afterwards.
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

/// Of an RPC that only looks.
const LOOKING: Codes = &[
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

/// The one code that is right for a fault: that of RPCs of a kind, but for what is different with this one. `UNAVAILABLE` for
/// those that are not named.
#[derive(Clone, Copy)]
struct Expected(Codes, Codes);

impl Expected {
    fn of(self, trouble: &str) -> Code {
        let Self(usual, own) = self;
        let found = own.iter().chain(usual).find(|(name, _)| *name == trouble);
        found.map_or(Code::Unavailable, |(_, code)| *code)
    }
}

/// Runs `call` once over each fault of `operation`, on a cloud and a driver of its own, and checks its code and its message.
/// `prepare` gives the object that the call is about: its id, or its name while it has none; nothing for a list.
async fn over_all_faults(
    operation: &str,
    expected: Expected,
    prepare: impl AsyncFn(&Sim, &Driver) -> String,
    call: impl AsyncFn(&Driver, String) -> Result<(), Status>,
) {
    let known: Vec<&str> = troubles().iter().map(|trouble| trouble.name).collect();
    let mut named = expected.0.iter().chain(expected.1);
    let misspelt = named.find(|(name, _)| !known.contains(name));
    assert!(misspelt.is_none(), "{misspelt:?}");
    let (prepare, call) = (&prepare, &call);
    let over = troubles()
        .into_iter()
        .map(|trouble| async move { over_one(operation, trouble, expected, prepare, call).await });
    let wrong: Vec<String> = futures::future::join_all(over).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{operation}:\n{}", wrong.join("\n"));
}

async fn over_one(
    operation: &str,
    trouble: Trouble,
    expected: Expected,
    prepare: &impl AsyncFn(&Sim, &Driver) -> String,
    call: &impl AsyncFn(&Driver, String) -> Result<(), Status>,
) -> Option<String> {
    let sim = cloud(|_| {}).await;
    let driver = Driver::with(&sim, &sim.access().cloud_conf(), |args| args.request_timeout = REQUEST);
    let object = prepare(&sim, &driver).await;
    sim.clear_log();
    let html = matches!(trouble.effect, Effect::Html { .. });
    sim.fault(Fault::on(operation).effect(trouble.effect)).expect("a fault");
    let (code, message) = match call(&driver, object.clone()).await {
        Ok(()) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    };
    let name = trouble.name;
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
    let lacking = lacks(&message, &object, trouble.status, html);
    (!lacking.is_empty()).then(|| format!("{name}: {} not told in: {message}", lacking.join(", ")))
}

/// What a refusal does not tell although it should.
fn lacks(message: &str, object: &str, status: Option<u16>, html: bool) -> Vec<String> {
    let mut lacking = Vec::new();
    let mut must = |what: String, told: bool| {
        if !told {
            lacking.push(what);
        }
    };
    must(format!("the object {object}"), message.contains(object));
    let absence = message.contains("does not exist");
    if let Some(status) = status {
        let told = match status {
            // What it means is told in words.
            404 => true,
            // A success of any kind whose body cannot be read.
            200 => message.contains("HTTP 20"),
            _ => message.contains(&format!("HTTP {status}")),
        };
        must(format!("status {status}"), told);
        must("the request id".to_owned(), html || message.contains("req-"));
    }
    must("the time that it took".to_owned(), absence || tells_a_time(message));
    lacking
}

/// Whether there is something like `after 1.5 s` in it.
fn tells_a_time(message: &str) -> bool {
    message.split("after ").skip(1).any(|rest| {
        let number: String = rest
            .chars()
            .take_while(|character| character.is_ascii_digit() || *character == '.')
            .collect();
        number.parse::<f64>().is_ok() && rest[number.len()..].starts_with(" s")
    })
}

/// Nothing has to be there before.
async fn nothing(_: &Sim, _: &Driver) -> String {
    String::new()
}

async fn volume(_: &Sim, driver: &Driver) -> String {
    driver.volume("pvc-1").await
}
