//! The files of `deploy/` are current, and know every kind and every part.

mod kinds;
mod parts;
mod stale;
