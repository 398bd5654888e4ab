//! The driver over its real socket, on the simulated cloud: what clients of CSI see.

mod create;
mod identity;
mod look;
mod process;
mod publish;
mod support;
