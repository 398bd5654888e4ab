//! Tests of the objects.
