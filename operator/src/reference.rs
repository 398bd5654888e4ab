//! The pages of the documentation that are made from the code.

mod pages;

pub use pages::{PageError, pages};
