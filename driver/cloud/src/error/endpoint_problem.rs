// SPDX-License-Identifier: Apache-2.0
//! Reasons why a catalogue has no endpoint for a service.

use thiserror::Error;

/// The reason why a catalogue has no endpoint for a service. `Display` is the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EndpointProblem {
    /// The catalogue does not list the service.
    #[error(
        "it does not list the service: have the service added to the catalogue, or use credentials of a project that has it"
    )]
    Service,
    /// The service has endpoints of other regions or interfaces only.
    #[error("check region and os-endpoint-type")]
    Place,
    /// The endpoints of this region and interface have other versions, or their addresses are not URLs.
    #[error(
        "region and interface are right, and these versions are not supported: have an endpoint of this version added to the catalogue"
    )]
    Version,
}
