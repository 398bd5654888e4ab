//! Tests of the schema as a whole.
