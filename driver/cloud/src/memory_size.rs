// SPDX-License-Identifier: Apache-2.0
//! The memory that the items of a list occupy.
//!
//! A short text in JSON can become an object many times its size. Therefore a list is limited by the size of the items
//! that it retains, and not by the size of its responses.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// The cost of an allocation besides its content: the header and the rounding of the allocator.
const ALLOCATION: usize = 16;
/// The entries in a node of a B-tree that was filled in ascending order, and in a full one.
const NODE_ENTRIES: usize = 6;
const NODE_CAPACITY: usize = 11;

/// A value with memory that can be counted.
pub trait MemorySize {
    /// The bytes on the heap that the value owns. The estimate may exceed the use of the allocator.
    fn heap_size(&self) -> usize;
}

/// Returns the size of a value with its heap.
pub(crate) fn total_size<T: MemorySize>(value: &T) -> usize {
    size_of::<T>().saturating_add(value.heap_size())
}

/// Implements [`MemorySize`] for a struct by its fields. A field that is not named is a compile error.
macro_rules! memory_size {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::memory_size::MemorySize for $name {
            fn heap_size(&self) -> usize {
                let Self { $($field),* } = self;
                [$($crate::memory_size::MemorySize::heap_size($field)),*].into_iter().sum()
            }
        }
    };
}

pub(crate) use memory_size;

fn allocation(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { bytes + ALLOCATION }
}

impl MemorySize for () {
    fn heap_size(&self) -> usize {
        0
    }
}

impl MemorySize for bool {
    fn heap_size(&self) -> usize {
        0
    }
}

impl MemorySize for String {
    fn heap_size(&self) -> usize {
        allocation(self.capacity())
    }
}

/// The items of a list share such strings.
impl MemorySize for Arc<str> {
    fn heap_size(&self) -> usize {
        0
    }
}

impl<T: MemorySize> MemorySize for Option<T> {
    fn heap_size(&self) -> usize {
        self.as_ref().map_or(0, T::heap_size)
    }
}

impl<T: MemorySize> MemorySize for Vec<T> {
    fn heap_size(&self) -> usize {
        let items: usize = self.iter().map(T::heap_size).sum();
        allocation(self.capacity() * size_of::<T>()) + items
    }
}

impl<T: MemorySize> MemorySize for Box<[T]> {
    fn heap_size(&self) -> usize {
        let items: usize = self.iter().map(T::heap_size).sum();
        allocation(size_of_val::<[T]>(self)) + items
    }
}

impl<T: MemorySize> MemorySize for BTreeMap<String, T> {
    fn heap_size(&self) -> usize {
        let node = allocation(NODE_CAPACITY * (size_of::<String>() + size_of::<T>()));
        let entries = self.iter().map(|(key, value)| key.heap_size() + value.heap_size());
        self.len().div_ceil(NODE_ENTRIES) * node + entries.sum::<usize>()
    }
}

impl MemorySize for Value {
    fn heap_size(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => 0,
            Self::String(text) => text.heap_size(),
            Self::Array(items) => items.heap_size(),
            Self::Object(entries) => entries
                .iter()
                .map(|(key, value)| key.heap_size() + total_size(value) + size_of::<String>() + ALLOCATION)
                .sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample {
        name: String,
        aliases: Vec<String>,
        labels: BTreeMap<String, String>,
    }

    memory_size!(Sample { name, aliases, labels });

    #[test]
    fn counts_all_fields_and_containers() {
        let text = |length: usize| "x".repeat(length);
        let mut value = Sample {
            name: text(100),
            aliases: Vec::new(),
            labels: BTreeMap::new(),
        };
        assert_eq!(value.heap_size(), 116);
        value.aliases = vec![text(1_000), text(1_000)];
        assert_eq!(value.heap_size(), 116 + 2 * 1_016 + 2 * size_of::<String>() + 16);
        let without_labels = value.heap_size();
        // A map with one short entry has a whole node.
        value.labels.insert("a".to_owned(), String::new());
        assert!(value.heap_size() > without_labels + NODE_CAPACITY * 2 * size_of::<String>());
        assert_eq!(total_size(&Some(text(10))), size_of::<String>() + 26);
        assert_eq!(serde_json::json!({"a": [1, "bc"]}).heap_size() / 32, 5);
    }
}
