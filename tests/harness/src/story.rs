//! What happened, told as a table.

/// One call that somebody made.
#[derive(Debug, Clone)]
pub struct Call;

/// Steps and what they took.
#[derive(Debug, Default)]
pub struct Story;
