//! The one place where an error becomes a gRPC status.
//!
//! The codes decide what the sidecars do next. For external-provisioner `CANCELLED`, `DEADLINE_EXCEEDED`, `UNAVAILABLE`
//! and `ABORTED` mean that a volume may still come into being; every other code says that none was made, and the volume
//! leaks if one was. So an uncertain CreateVolume never gets a final code.

use std::fmt;
use std::time::Duration;

use tonic::Status;

/// A field of the request is missing or wrong: `INVALID_ARGUMENT` that names the field and says what is asked for.
pub fn invalid(field: &str, problem: impl fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {problem}"))
}

/// The client's time is up while the operation goes on.
pub fn still_running(rpc: &str, target: &impl fmt::Display, elapsed: Duration, state: &str) -> Status {
    Status::deadline_exceeded(format!(
        "{rpc} for {target} is not done after {:.1} s (last state: {state}); it goes on, and the same request joins it",
        elapsed.as_secs_f64()
    ))
}

/// A different request for the same volume is running.
pub fn other_operation(rpc: &str, target: &impl fmt::Display, other: &str, elapsed: Duration, state: &str) -> Status {
    Status::aborted(format!(
        "{rpc}: a different {other} for {target} has been running for {:.1} s (last state: {state}); try again when it is done",
        elapsed.as_secs_f64()
    ))
}

/// More operations than the process may run at once.
pub fn too_many_operations(rpc: &str, running: usize) -> Status {
    Status::unavailable(format!(
        "{rpc}: {running} operations are running, which is the limit; try again later"
    ))
}

/// The process is about to end.
pub fn shutting_down(rpc: &str) -> Status {
    Status::unavailable(format!(
        "{rpc}: the driver is shutting down; its successor takes the same request"
    ))
}

/// The operation panicked; what it did so far is found again by the retry.
pub fn panicked(rpc: &str) -> Status {
    Status::internal(format!(
        "{rpc}: the driver made a mistake and stopped this call; see its log"
    ))
}

/// The operation was torn down before it had a result.
pub fn abandoned() -> Status {
    Status::unavailable("the operation was abandoned because the driver is ending; the same request goes on with it")
}
