//! Number formats and their exact conversions.
