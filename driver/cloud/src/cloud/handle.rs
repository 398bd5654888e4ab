// SPDX-License-Identifier: Apache-2.0
//! The handle of a cloud.

use std::sync::Arc;

use crate::context::Context;

/// One cloud. Cheap to clone; clones share the session, the token and the watch.
///
/// The operations (create, delete, attach, detach) end within [`CloudOptions::operation_timeout`]. Dropping their futures stops the
/// waiting but nothing that OpenStack has begun; calling again with the same arguments goes on where they were.
#[derive(Debug, Clone)]
pub struct Cloud {
    pub(super) inner: Arc<Context>,
}
