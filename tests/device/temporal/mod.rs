//! Models with states: every stream has its own, whatever the others do, and what they compute is what they say.

mod apart;
mod devices;
mod history;
mod plain;
mod plain_bev;
mod plain_queries;
mod rig;
