//! The wire layer: by example, by property, by the corpora.

mod cases;
mod corpus;
mod edit;
mod loss;
mod rfc4475;

#[path = "../targets/sdp.rs"]
mod sdp;
#[path = "../targets/stream.rs"]
mod stream;
#[path = "../support/mod.rs"]
mod support;
#[path = "../targets/mod.rs"]
mod targets;
