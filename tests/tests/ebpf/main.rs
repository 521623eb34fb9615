//! The programs under BPF_PROG_TEST_RUN and on interfaces, the maps and their life.

mod fixtures;
mod lifecycle;
mod peer;
mod rebuild;
mod scale;
mod segments;
mod tear;
mod through;
mod twin;
