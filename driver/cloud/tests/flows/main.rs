//! The crate's flows against a simulated cloud: whole logins, lives of volumes, and what goes wrong on the way.

mod attachments;
mod lives;
mod session;
mod support;
mod volumes;
