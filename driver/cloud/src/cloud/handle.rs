// SPDX-License-Identifier: Apache-2.0
//! The handle of a cloud.

use std::sync::Arc;

use crate::context::Context;

/// A handle of one cloud. Cheap to clone; clones share the session, the token and the polls.
///
/// The operations (create, delete, attach, detach) end within [`CloudOptions::operation_timeout`]. Dropping their
/// futures stops the wait, but not an action that OpenStack has started. Another call with the same arguments continues
/// it.
///
/// [`CloudOptions::operation_timeout`]: crate::CloudOptions::operation_timeout
#[derive(Debug, Clone)]
pub struct Cloud {
    pub(super) inner: Arc<Context>,
}
